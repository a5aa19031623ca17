/* What the plug-in uses of Slurm's spank.h, for the driver of the tests; not Slurm's own. */
#ifndef STUB_SPANK_H
#define STUB_SPANK_H

typedef struct spank_handle *spank_t;
typedef int spank_err_t;
typedef int (*spank_opt_cb_f)(int val, const char *optarg, int remote);
typedef enum {
    S_CTX_ERROR, S_CTX_LOCAL, S_CTX_REMOTE, S_CTX_ALLOCATOR, S_CTX_SLURMD, S_CTX_JOB_SCRIPT
} spank_context_t;

enum { ESPANK_SUCCESS = 0, ESPANK_ERROR = 1, ESPANK_ENV_NOEXIST = 2, ESPANK_NOSPACE = 3 };

struct spank_option {
    char *name;
    char *arginfo;
    char *usage;
    int has_arg;
    int val;
    spank_opt_cb_f cb;
};

#define SPANK_PLUGIN(name, version) const char plugin_name[] = #name;

spank_context_t spank_context(void);
spank_err_t spank_option_register(spank_t spank, struct spank_option *option);
spank_err_t spank_getenv(spank_t spank, const char *name, char *buffer, int size);
spank_err_t spank_setenv(spank_t spank, const char *name, const char *value, int overwrite);
spank_err_t spank_job_control_setenv(spank_t spank, const char *name, const char *value, int over);
spank_err_t spank_job_control_unsetenv(spank_t spank, const char *name);
void slurm_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void slurm_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void slurm_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

int slurm_spank_init(spank_t spank, int argc, char *argv[]);
int slurm_spank_init_post_opt(spank_t spank, int argc, char *argv[]);

#endif
