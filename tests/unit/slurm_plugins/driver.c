/* Does with the plug-in what Slurm does, and prints what comes of it; each record ends in a NUL.
 *
 *   driver CONTEXT [WORD...]     WORD: --name, --name=value, NAME=VALUE of the job (remote), or :
 *   driver options               the options that it offers
 *
 * Every option is one record, "ok" or "refused"; behind each component come the records "env",
 * "control" and "told". The last record is "end".
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../slurm_plugins/spank_federator.c"

enum { MOST = 64 };

extern char **environ;

static struct spank_option registered[MOST];
static int registrations;
static spank_context_t context;
static char *job[MOST], *control[MOST]; /* NAME=VALUE */
static bool failing;                    /* every call of Slurm's fails */

spank_context_t spank_context(void) { return context; }

spank_err_t spank_option_register(spank_t spank, struct spank_option *option)
{
    (void)spank;
    if (failing || registrations == MOST)
        return ESPANK_ERROR;
    registered[registrations++] = *option;
    return ESPANK_SUCCESS;
}

static char **find(char **list, const char *name)
{
    size_t length = strlen(name);
    int k;

    for (k = 0; k < MOST && list[k]; k++)
        if (strncmp(list[k], name, length) == 0 && list[k][length] == '=')
            break;
    return &list[k];
}

static void put(char **list, const char *name, const char *value)
{
    char **at = find(list, name);
    size_t size = strlen(name) + strlen(value) + 2;

    free(*at);
    *at = malloc(size);
    snprintf(*at, size, "%s=%s", name, value);
}

spank_err_t spank_getenv(spank_t spank, const char *name, char *buffer, int size)
{
    char **at = find(job, name);
    const char *value = *at ? strchr(*at, '=') + 1 : "";

    (void)spank;
    if (failing || *at == NULL)
        return ESPANK_ENV_NOEXIST;
    return snprintf(buffer, (size_t)size, "%s", value) < size ? ESPANK_SUCCESS : ESPANK_NOSPACE;
}

spank_err_t spank_setenv(spank_t spank, const char *name, const char *value, int overwrite)
{
    (void)spank;
    if (failing || (*find(job, name) && !overwrite))
        return ESPANK_ERROR;
    put(job, name, value);
    return ESPANK_SUCCESS;
}

spank_err_t spank_job_control_setenv(spank_t spank, const char *name, const char *value, int over)
{
    (void)spank;
    (void)over;
    if (failing)
        return ESPANK_ERROR;
    put(control, name, value);
    return ESPANK_SUCCESS;
}

spank_err_t spank_job_control_unsetenv(spank_t spank, const char *name)
{
    char **at = find(control, name), **last = at;

    (void)spank;
    if (*at == NULL)
        return ESPANK_ENV_NOEXIST;
    while (last[1])
        last++;
    free(*at);
    *at = *last;
    *last = NULL;
    return ESPANK_SUCCESS;
}

static void record(const char *kind, const char *format, va_list values)
{
    printf("%s ", kind);
    vprintf(format, values);
    putchar('\0');
}

#define LOGGER(name, kind)                 \
    void name(const char *format, ...)     \
    {                                      \
        va_list values;                    \
                                           \
        va_start(values, format);          \
        record(kind, format, values);      \
        va_end(values);                    \
    }

LOGGER(slurm_error, "refused")
LOGGER(slurm_info, "told")
LOGGER(slurm_debug, "debug")

static void give(const char *word)
{
    const char *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) : strlen(word);
    int k;

    for (k = 0; k < registrations; k++)
        if (strlen(registered[k].name) == length &&
            strncmp(registered[k].name, word, length) == 0) {
            if (registered[k].cb(registered[k].val, equals ? equals + 1 : NULL,
                                 context == S_CTX_REMOTE) == 0)
                printf("ok%c", '\0');
            return;
        }
    printf("unknown %s%c", word, '\0');
}

static void close_component(void)
{
    char **each;

    if (slurm_spank_init_post_opt(NULL, 0, NULL) != ESPANK_SUCCESS)
        printf("failed%c", '\0');
    for (each = context == S_CTX_REMOTE ? job : environ; *each; each++)
        if (strncmp(*each, "FED_", 4) == 0 || strstr(*each, "SPANK_OPTION"))
            printf("env %s%c", *each, '\0');
    for (each = control; *each; each++)
        printf("control %s%c", *each, '\0');
}

static spank_context_t context_called(const char *name)
{
    static const char *const names[] = {"error", "local", "remote", "allocator", "slurmd", "script"};
    int k;

    for (k = 0; k < 6; k++)
        if (strcmp(name, names[k]) == 0)
            return (spank_context_t)k;
    exit(64);
}

int main(int argc, char *argv[])
{
    const char *what = argc > 1 ? argv[1] : "";
    int k;

    failing = getenv("FAILING") != NULL;
    context = strcmp(what, "options") == 0 ? S_CTX_ALLOCATOR : context_called(what);
    if (slurm_spank_init(NULL, 0, NULL) != ESPANK_SUCCESS)
        printf("failed%c", '\0');
    if (strcmp(what, "options") == 0) {
        for (k = 0; k < registrations; k++)
            printf("%s %d%c", registered[k].name, registered[k].has_arg, '\0');
        return 0;
    }
    for (k = 2; k < argc; k++)
        if (strcmp(argv[k], ":") == 0)
            close_component();
        else if (strncmp(argv[k], "--", 2) == 0)
            give(argv[k] + 2);
        else {
            char *value = strchr(argv[k], '=');

            *value++ = '\0';
            put(job, argv[k], value);
        }
    close_component();
    for (k = 0; k < MOST; k++) {
        free(job[k]);
        free(control[k]);
    }
    printf("end%c", '\0');
    return 0;
}
