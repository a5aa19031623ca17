/* Declares the --fed-... options of sbatch, salloc and srun, on command lines and in #SBATCH.
 *
 * In the client (sbatch, salloc, srun) values are checked by the rules of fsbatch, put into the
 * job's environment (FED_TP ...) and, for prolog and epilog, into Slurm's job control environment
 * (SPANK_FED_TP ...). In slurmstepd a value is put into the environment only where it is missing,
 * which is so after --export=NONE. Without such an option nothing is done anywhere, and whatever
 * goes wrong in here, other than a bad value, is no reason to refuse a job.
 *
 * federator/slurm/options/own_values.py is its twin; tests/data/fed_options.json holds both to the
 * same values and words. Nothing is allocated: values are bounded, and kept only until the options
 * of one component of a het job have all been read.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/spank.h>

SPANK_PLUGIN(federator, 1)

#define MAX_MIB (1LL << 53) /* of memory */

enum {
    MAX_DATASETS = 32,
    MAX_DATASET_BYTES = 128, /* of a name */
    MAX_VERSION_BYTES = 64,
    MAX_PROJECT_BYTES = 64,
    MAX_GPU_TYPES = 64,
    MAX_PARALLEL = 4096,
    MAX_NODES = 65536,
    MAX_PROGRESS_MIN = 10080, /* a week */
    MIN_PROGRESS_S = 10,
    MAX_ARRAY_INDEX = 4000000,
    MAX_ARRAY_TASKS = 10000,
    MAX_DIGITS = 18,
    DATASETS_BYTES = MAX_DATASETS * (MAX_DATASET_BYTES + MAX_VERSION_BYTES + sizeof "@:ro,"),
    NUMBERS_BYTES = 64,
    SHOWN_BYTES = 60, /* of a refused value */
    NAME_BYTES = 96,
    NOTE_BYTES = 256,
};

/* ---- values: each reader says whether `text` is one, and writes it to `value` of `size` ---- */

typedef bool reader(const char *text, char *value, size_t size);

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_alnum(char c)
{
    return is_digit(c) || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static bool is_one_of(char c, const char *set) { return c != '\0' && strchr(set, c) != NULL; }

/* Read 1 to 18 digits; returns what follows them, or NULL. */
static const char *digits(const char *text, long long *number)
{
    int count = 0;

    for (*number = 0; is_digit(*text); text++) {
        if (++count > MAX_DIGITS)
            return NULL;
        *number = *number * 10 + (*text - '0');
    }
    return count ? text : NULL;
}

static bool read_parallel(const char *text, char *value, size_t size)
{
    long long number;
    const char *end = digits(text, &number);

    if (end == NULL || *end != '\0' || number < 1 || number > MAX_PARALLEL)
        return false;
    return snprintf(value, size, "%lld", number) < (int)size;
}

static bool read_progress(const char *text, char *value, size_t size)
{
    long long minutes, seconds = 0;
    const char *end = digits(text, &minutes);

    if (end == NULL || minutes > MAX_PROGRESS_MIN)
        return false;
    if (*end == ':') {
        if (end[1] < '0' || end[1] > '5' || end[2] < '0' || end[2] > '9')
            return false;
        seconds = (end[1] - '0') * 10 + (end[2] - '0');
        end += 3;
    }
    if (*end != '\0' || minutes * 60 + seconds < MIN_PROGRESS_S)
        return false;
    if (minutes * 60 + seconds > MAX_PROGRESS_MIN * 60)
        return false;
    return snprintf(value, size, "%s", text) < (int)size;
}

static bool read_elastic(const char *text, char *value, size_t size)
{
    long long least, most, step = 1;
    const char *end = digits(text, &least);

    if (end == NULL || *end != '-' || (end = digits(end + 1, &most)) == NULL)
        return false;
    if (*end == ':' && (end = digits(end + 1, &step)) == NULL)
        return false;
    if (*end != '\0' || least < 1 || most < least || most > MAX_NODES)
        return false;
    if (step < 1 || step > MAX_NODES || (most - least) % step)
        return false;
    if (step == 1)
        return snprintf(value, size, "%lld-%lld", least, most) < (int)size;
    return snprintf(value, size, "%lld-%lld:%lld", least, most, step) < (int)size;
}

/* Length of the name that `text` begins with, of at most `most` bytes; 0 where there is none.
 *
 * A name is letters, digits and `others`. It, and each part of it behind a slash, begins with a
 * letter or digit, so that no path leads upwards.
 */
static size_t name_length(const char *text, const char *others, size_t most)
{
    size_t length = 0;

    if (!is_alnum(*text))
        return 0;
    while (is_alnum(text[length]) || is_one_of(text[length], others)) {
        if (text[length] == '/' && !is_alnum(text[length + 1]))
            return 0;
        if (++length > most)
            return 0;
    }
    return length;
}

static bool read_project(const char *text, char *value, size_t size)
{
    size_t length = name_length(text, "._-", MAX_PROJECT_BYTES);

    return length && text[length] == '\0' && snprintf(value, size, "%s", text) < (int)size;
}

/* Read NAME[@VERSION][:ro|:rw]; returns what follows it, or NULL. */
static const char *dataset(const char *at)
{
    size_t length = name_length(at, "._/-", MAX_DATASET_BYTES);

    if (length == 0)
        return NULL;
    at += length;
    if (*at == '@') {
        length = name_length(++at, "._-", MAX_VERSION_BYTES);
        if (length == 0)
            return NULL;
        at += length;
    }
    return strncmp(at, ":ro", 3) == 0 || strncmp(at, ":rw", 3) == 0 ? at + 3 : at;
}

static bool read_datasets(const char *text, char *value, size_t size)
{
    const char *at = text;
    int names;

    for (names = 1; names <= MAX_DATASETS; names++) {
        at = dataset(at);
        if (at == NULL)
            return false;
        if (*at == '\0')
            return snprintf(value, size, "%s", text) < (int)size;
        if (*at++ != ',')
            return false;
    }
    return false;
}

/* Read NAME[@VERSION][:home|:keep]; only fsbatch does anything about it. */
static bool read_output(const char *text, char *value, size_t size)
{
    const char *end;
    size_t length = name_length(text, "._/-", MAX_DATASET_BYTES);

    (void)value;
    (void)size;
    if (length == 0)
        return false;
    end = text + length;
    if (*end == '@') {
        length = name_length(++end, "._-", MAX_VERSION_BYTES);
        if (length == 0)
            return false;
        end += length;
    }
    return *end == '\0' || strcmp(end, ":home") == 0 || strcmp(end, ":keep") == 0;
}

static bool read_priority(const char *text, char *value, size_t size)
{
    long long number;
    const char *end = digits(text, &number);

    (void)value;
    (void)size;
    return end != NULL && *end == '\0' && number >= 1 && number <= 7;
}

/* A number with M, G or T behind it, and after that nothing, "B" or "iB", in either case. */
static bool read_memory(const char *text, char *value, size_t size)
{
    long long number, most = MAX_MIB;
    const char *end = digits(text, &number);

    (void)value;
    (void)size;
    if (end == NULL || !is_one_of(*end, "MGTmgt"))
        return false;
    if (!is_one_of(*end, "Mm"))
        most /= is_one_of(*end, "Gg") ? 1024 : 1024 * 1024;
    if (number > most)
        return false;
    end++;
    if (is_one_of(*end, "Ii")) {
        end++;
        if (!is_one_of(*end, "Bb"))
            return false;
    }
    if (is_one_of(*end, "Bb"))
        end++;
    return *end == '\0';
}

static bool read_gpu_types(const char *text, char *value, size_t size)
{
    int names;

    (void)value;
    (void)size;
    for (names = 1; names <= MAX_GPU_TYPES; names++) {
        size_t length = name_length(text, "._-", MAX_PROJECT_BYTES);

        if (length == 0)
            return false;
        text += length;
        if (*text == '\0')
            return true;
        if (!is_one_of(*text++, ",|"))
            return false;
    }
    return false;
}

/* Tasks of an array: 0-7, 1,3,5-9:2, [1-5]; nothing at all for a component of a het job. */
static bool read_tasks(const char *text, char *value, size_t size)
{
    bool bracket = *text == '[';
    long long first, last, step, tasks = 0;

    (void)value;
    (void)size;
    text += bracket;
    for (;;) {
        step = 1;
        if ((text = digits(text, &first)) == NULL)
            return false;
        last = first;
        if (*text == '-') {
            if ((text = digits(text + 1, &last)) == NULL)
                return false;
            if (*text == ':' && ((text = digits(text + 1, &step)) == NULL || step < 1))
                return false;
        }
        if (last < first || last > MAX_ARRAY_INDEX)
            return false;
        tasks += (last - first) / step + 1;
        if (tasks > MAX_ARRAY_TASKS)
            return false;
        if (*text != ',')
            break;
        text++;
    }
    if (bracket && *text++ != ']')
        return false;
    return *text == '\0';
}

/* ---- options ---- */

enum { FLAG = 0, REQUIRED = 1, OPTIONAL = 2 }; /* arguments, as getopt counts them */

struct fed_option {
    const char *name;
    const char *arginfo;
    const char *usage;
    int has_arg;
    reader *read;
    const char *expected; /* ends "Invalid --fed-tp value "0", " */
    const char *variable; /* of the job; NULL: plain sbatch hands it to nobody */
    bool misleads;        /* plain sbatch does not do what the option says */
};

enum { TP, PP, DATASET, ELASTIC, PROJECT, PROGRESS, CONTINUE, CARRIED };

static const struct fed_option options[] = {
    [TP] = {"fed-tp", "N", "tensor-parallel groups of N GPUs, as FED_TP", REQUIRED, read_parallel,
            "must be between 1 and 4096", "FED_TP", false},
    [PP] = {"fed-pp", "N", "N pipeline stages of such groups, as FED_PP", REQUIRED, read_parallel,
            "must be between 1 and 4096", "FED_PP", false},
    [DATASET] = {"fed-dataset", "NAMES", "data sets that the job reads, as FED_DATASET", REQUIRED,
                 read_datasets,
                 "name at most 32 data sets, NAME[@VERSION][:ro|:rw] each, like "
                 "imagenet/v2,wiki.en@3:ro; a name has 1 to 128 of A-Z a-z 0-9 . _ / -, a version "
                 "1 to 64 and no /; parts begin with a letter or digit",
                 "FED_DATASET", false},
    [ELASTIC] = {"fed-elastic", "MIN-MAX[:STEP]", "nodes that the job can run on, as FED_ELASTIC",
                 REQUIRED, read_elastic,
                 "must be MIN-MAX or MIN-MAX:STEP nodes, e.g. 2-8 or 2-8:2, with MIN of at least "
                 "1, MAX of at most 65536 and whole STEPs between them",
                 "FED_ELASTIC", false},
    [PROJECT] = {"fed-project", "NAME", "project that the job belongs to, as FED_PROJECT",
                 REQUIRED, read_project,
                 "must be a name of 1 to 64 of A-Z a-z 0-9 . _ -, the first a letter or digit",
                 "FED_PROJECT", false},
    [PROGRESS] = {"fed-progress", "MIN[:SS]",
                  "start again if no step ends for so long (fsbatch), as FED_PROGRESS", REQUIRED,
                  read_progress,
                  "must be minutes, MIN or MIN:SS, from 0:10 to 10080, e.g. 30", "FED_PROGRESS",
                  true},
    [CONTINUE] = {"fed-continue", NULL, "go on at the time limit (fsbatch), as FED_CONTINUE=1",
                  FLAG, NULL, NULL, "FED_CONTINUE", true},
    {"fed-output", "NAME", "data set that the job writes (fsbatch)", REQUIRED, read_output,
     "must be NAME[@VERSION][:home|:keep], like maps/big@3:home; a name has 1 to 128 of A-Z a-z "
     "0-9 . _ / -, a version 1 to 64 and no /; parts begin with a letter or digit",
     NULL, true},
    {"fed-gpu-mem", "SIZE", "memory of each GPU, at least (fsbatch)", REQUIRED, read_memory,
     "say the unit, e.g. 40G", NULL, true},
    {"fed-gpu-types", "LIST", "any of these GPU types (fsbatch)", REQUIRED, read_gpu_types,
     "name types like a100,h100, at most 64", NULL, true},
    {"fed-nvlink", NULL, "NVLink between the GPUs of a node (fsbatch)", FLAG, NULL, NULL, NULL,
     true},
    {"fed-migrate", NULL, "move it off slow nodes when that pays (fsbatch)", FLAG, NULL, NULL, NULL,
     true},
    {"fed-spare", "N", "spare nodes beside --nodes (fsbatch)", REQUIRED, read_parallel,
     "must be between 1 and 4096", NULL, true},
    {"fed-no-preempt", NULL, "never evict it (fsbatch)", FLAG, NULL, NULL, NULL, true},
    {"fed-priority", "N", "rank it at level N or below (fsbatch)", REQUIRED, read_priority,
     "must be between 1 and 7 (lowest)", NULL, false},
    {"fed-optional", "TASKS", "what may be taken from it first (fsbatch)", OPTIONAL, read_tasks,
     "name tasks of the array, e.g. 4-7; %N belongs to --array", NULL, false},
};

enum { OPTIONS = sizeof options / sizeof options[0] };

/* What the component that is being read was given. */
static bool given[OPTIONS];
static char datasets[DATASETS_BYTES];
static char project[MAX_PROJECT_BYTES + 1];
static char numbers[CARRIED][NUMBERS_BYTES];
static bool handed_on[CARRIED]; /* by a component before it, or by this one */

static char *value_of(int k, size_t *size)
{
    *size = k == DATASET ? sizeof datasets : k == PROJECT ? sizeof project : NUMBERS_BYTES;
    return k == DATASET ? datasets : k == PROJECT ? project : numbers[k];
}

/* Called by Slurm for every option met, the last one of a name counting. */
static int take(int k, const char *text, int remote)
{
    char unused[NUMBERS_BYTES] = "";
    char *value = unused;
    size_t size = sizeof unused;
    const struct fed_option *option;

    if (k < 0 || k >= OPTIONS || remote)
        return 0;
    option = &options[k];
    if (k < CARRIED)
        value = value_of(k, &size);
    if (option->has_arg == FLAG)
        snprintf(value, size, "1");
    else if (option->has_arg == OPTIONAL && text == NULL)
        ; /* a component of a het job */
    else if (text == NULL || !option->read(text, value, size)) {
        slurm_error("Invalid --%s value \"%.*s\", %s", option->name, SHOWN_BYTES,
                    text == NULL ? "" : text, option->expected);
        return -1;
    }
    given[k] = true;
    return 0;
}

static void register_options(spank_t spank)
{
    int k;

    for (k = 0; k < OPTIONS; k++) {
        struct spank_option option = {
            .name = (char *)options[k].name,
            .arginfo = (char *)options[k].arginfo,
            .usage = (char *)options[k].usage,
            .has_arg = options[k].has_arg,
            .val = k,
            .cb = take,
        };

        if (spank_option_register(spank, &option) != ESPANK_SUCCESS)
            slurm_debug("federator: --%s cannot be offered", options[k].name);
    }
}

/* Hand a component's values on. Job control is each component's own. The environment is one for all
 * in salloc and srun, where the first component that says something decides; sbatch keeps a copy of
 * it for each, and the batch script sees that of the first.
 */
static void hand_on(spank_t spank)
{
    int k;

    for (k = 0; k < CARRIED; k++) {
        const char *variable = options[k].variable;
        size_t size;
        const char *value = value_of(k, &size);

        if (given[k]) {
            (void)spank_job_control_setenv(spank, variable, value, 1);
            if (!handed_on[k])
                (void)setenv(variable, value, 1);
            handed_on[k] = true;
        } else if (handed_on[k]) {
            (void)spank_job_control_unsetenv(spank, variable);
        }
    }
}

/* Tell who asked for what only fsbatch does; --quiet hides it. */
static void say_what_has_no_effect(void)
{
    char note[NOTE_BYTES] = "";
    int k;

    for (k = 0; k < OPTIONS; k++)
        if (given[k] && options[k].misleads) {
            size_t length = strlen(note);

            snprintf(note + length, sizeof note - length, "%s--%s", length ? ", " : "",
                     options[k].name);
        }
    if (*note)
        slurm_info("%s: of no effect here, only with fsbatch", note);
}

/* In slurmstepd: what --export kept out of the environment is still in that of job control. */
static void fill_in(spank_t spank)
{
    static char found[DATASETS_BYTES];
    char name[NUMBERS_BYTES];
    int k;

    for (k = 0; k < CARRIED; k++) {
        size_t size;
        char *value = value_of(k, &size);

        snprintf(name, sizeof name, "SLURM_SPANK_%s", options[k].variable);
        if (spank_getenv(spank, name, found, sizeof found) != ESPANK_SUCCESS)
            continue;
        if (k == CONTINUE ? strcmp(found, "1") == 0 : options[k].read(found, value, size))
            (void)spank_setenv(spank, options[k].variable, k == CONTINUE ? "1" : value, 0);
    }
}

/* Slurm hands options on, as variables that stand for words of the command line: to the components
 * of a het job after this one, above what their own #SBATCH lines say, and to each srun within the
 * job, above what the script has made of FED_*. FED_* hands them on already; these go.
 */
static void keep_from_others(spank_t spank)
{
    char name[NAME_BYTES];
    char *at;
    int k;

    for (k = 0; k < OPTIONS; k++) {
        if (!given[k])
            continue;
        snprintf(name, sizeof name, "_SLURM_SPANK_OPTION_federator_%s", options[k].name);
        for (at = name; *at; at++)
            if (*at == '-')
                *at = '_';
        (void)spank_job_control_unsetenv(spank, name);
        (void)unsetenv(name);
    }
}

/* ---- what Slurm calls ---- */

int slurm_spank_init(spank_t spank, int argc, char *argv[])
{
    spank_context_t context = spank_context();

    (void)argc;
    (void)argv;
    if (context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR || context == S_CTX_REMOTE)
        register_options(spank);
    return ESPANK_SUCCESS;
}

int slurm_spank_init_post_opt(spank_t spank, int argc, char *argv[])
{
    spank_context_t context = spank_context();

    (void)argc;
    (void)argv;
    if (context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR) {
        hand_on(spank);
        keep_from_others(spank);
        say_what_has_no_effect();
    } else if (context == S_CTX_REMOTE) {
        fill_in(spank);
    }
    memset(given, 0, sizeof given);
    return ESPANK_SUCCESS;
}
