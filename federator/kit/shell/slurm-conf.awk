# How do the federation's settings and a site's slurm.conf become one configuration, each key once?
#
# usage: awk -v ours=FILE -v theirs=FILE -v by_hand=FILE -f slurm-conf.awk SNIPPET SLURM.CONF
#
# Writes to `theirs` the site's slurm.conf with "Include federator.conf" as its last line, and with
# the lines that ours take the place of behind a mark; to `ours` the file that is included: the
# snippet, its lists joined with those that the site has; to `by_hand` what only a person can do.
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

NR == FNR { snippet[++snippets] = $0; next }
$0 == INCLUDE { next }
{
    if (index($0, MARK) == 1) $0 = substr($0, length(MARK) + 1)
    site[++sites] = $0
    key = key_of($0)
    if (key == "partitionname") partition[tolower(first_word(value_of($0)))] = 1
    else if (key != "") { at[key] = sites; count[key]++ }
}
/^[ \t]*[Ii][Nn][Cc][Ll][Uu][Dd][Ee][ \t]/ { others = others " " $2 }

END {
    for (i = 1; i <= snippets; i++) {
        line = snippet[i]
        key = key_of(line)
        value = value_of(line)
        if (key == "") { print line > ours; continue }
        if (key == "partitionname") {
            if (first_word(value) in partition || tolower(first_word(value)) in partition)
                line = "# slurm.conf has partition " first_word(value) "."
            print line > ours
            continue
        }
        if (!(key in at)) { print line > ours; continue }
        old = value_of(site[at[key]])
        if (key in list) value = joined(old, value)
        if (old == value) {
            print "# slurm.conf has it: " line > ours
            continue
        }
        if ((key == "prolog" || key == "epilog") && old ~ /\/\*$/) {
            print "# slurm.conf has a folder: " key "=" old > ours
            continue
        }
        line = substr(line, 1, index(line, "=")) value
        if (count[key] > 1 || site[at[key]] ~ /\\$/ || old ~ /[ \t]/) {
            print "set in slurm.conf: " line > by_hand
            print "# by hand, in slurm.conf: " line > ours
            continue
        }
        hidden[at[key]] = 1
        print line > ours
    }
    for (i = 1; i <= sites; i++) print (i in hidden ? MARK : "") site[i] > theirs
    print INCLUDE > theirs
    if (others != "")
        print "look whether these set what federator.conf sets, too:" others > by_hand
}
