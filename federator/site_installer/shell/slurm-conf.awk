# How do the federation's settings and a site's slurm.conf become one configuration, each key once?
#
# usage: awk -v ours=FILE -v theirs=FILE -v by_hand=FILE -f slurm-conf.awk SNIPPET SLURM.CONF
#
# Writes to `theirs` the site's slurm.conf with "Include federator.conf" as its last line, and with
# the lines that ours take the place of behind a mark; to `ours` the file that is included: the
# snippet, its lists joined with those that the site has; to `by_hand` what only a person can do.
# Files that slurm.conf includes are read as well, beside it where they are named without a folder.
# What an earlier run did to slurm.conf is taken back first, so the outcome is always the same.

BEGIN {
    MARK = "#federator# "
    INCLUDE = "Include federator.conf"
    split("prologflags jobsubmitplugins schedulerparameters slurmctldparameters", words, " ")
    for (i in words) list[words[i]] = 1
}
function key_of(line) {
    if (!match(line, /^[ \t]*[A-Za-z0-9_]+[ \t]*=/)) return ""
    line = substr(line, RSTART, RLENGTH)
    gsub(/[ \t=]/, "", line)
    return tolower(line)
}
function value_of(line) {
    sub(/^[^=]*=[ \t]*/, "", line)
    sub(/[ \t]*#.*$/, "", line)
    sub(/[ \t]+$/, "", line)
    return line
}
function first_word(text) { sub(/[ \t].*$/, "", text); return text }
function has(values, value,    parts, n, i) {
    n = split(values, parts, /[ \t]*,[ \t]*/)
    for (i = 1; i <= n; i++) if (tolower(parts[i]) == tolower(value)) return 1
    return 0
}
# values, and after them what of more they lack
function joined(values, more,    parts, n, i) {
    n = split(more, parts, ",")
    for (i = 1; i <= n; i++)
        if (!has(values, parts[i])) values = values (values == "" ? "" : ",") parts[i]
    return values
}

function is_include(line) { return tolower(line) ~ /^[ \t]*include[ \t]/ }
function is_ours(line) { return tolower(line) ~ /^[ \t]*include[ \t]+([^ \t]*\/)?federator\.conf[ \t]*$/ }
function path_of(line,    word) {
    sub(/^[ \t]*[A-Za-z]+[ \t]+/, "", line)
    sub(/[ \t].*$/, "", line)
    return line ~ /^\// ? line : folder line
}
# What a file that the site includes sets: that can only be changed there, by a person.
function look_into(file, depth,    line, key, lines) {
    while (depth < 8 && (lines = (getline line <file)) > 0) {
        if (is_include(line)) { look_into(path_of(line), depth + 1); continue }
        key = key_of(line)
        if (key == "partitionname") partition[tolower(first_word(value_of(line)))] = 1
        else if (key != "") { elsewhere[key] = value_of(line); file_of[key] = file }
    }
    if (depth >= 8 || lines < 0) print "look whether this sets what federator.conf sets: " file > by_hand
    else close(file)
}
# Whether a site's value gives what ours is for; if not, `wanted` is what it would have to be.
function is_enough(key, old, value) {
    wanted = (key in list) ? joined(old, value) : value
    if (old == wanted) return "has it: "
    return (key == "prolog" || key == "epilog") && old ~ /\/\*$/ ? "has a folder: " : ""
}
function is_pattern(key, old) { return (key == "prolog" || key == "epilog") && old ~ /[*?\[]/ }

NR == FNR { snippet[++snippets] = $0; next }
FNR == 1 { folder = FILENAME; sub(/[^\/]*$/, "", folder) }
is_ours($0) { if (!includes++) site[++sites] = $0; next }
is_include($0) { look_into(path_of($0), 0) }
{
    if (index($0, MARK) == 1) $0 = substr($0, length(MARK) + 1)
    site[++sites] = $0
    key = key_of($0)
    if (key == "partitionname") partition[tolower(first_word(value_of($0)))] = 1
    else if (key != "") { at[key] = sites; count[key]++ }
}

END {
    for (i = 1; i <= snippets; i++) {
        line = snippet[i]
        key = key_of(line)
        value = value_of(line)
        if (key == "") { print line > ours; continue }
        if (key == "partitionname") {
            if (tolower(first_word(value)) in partition)
                line = "# slurm.conf has partition " first_word(value) "."
            print line > ours
            continue
        }
        if (!(key in at) && !(key in elsewhere)) { print line > ours; continue }
        old = (key in at) ? value_of(site[at[key]]) : elsewhere[key]
        enough = is_enough(key, old, value)
        if (enough != "") {
            print "# slurm.conf " enough (enough == "has it: " ? line : key "=" old) > ours
            continue
        }
        line = substr(line, 1, index(line, "=")) wanted
        if (key in elsewhere || count[key] > 1 || site[at[key]] ~ /\\$/ || old ~ /[ \t]/ ||
            is_pattern(key, old)) {
            print "set in " (key in elsewhere ? file_of[key] : "slurm.conf") ": " line > by_hand
            print "# by hand, in slurm.conf: " line > ours
            continue
        }
        hidden[at[key]] = 1
        print line > ours
    }
    for (i = 1; i <= sites; i++) print (i in hidden ? MARK : "") site[i] > theirs
    if (!includes) print INCLUDE > theirs
}
