/* sheaf mpirun: runs an MPI program whose MPI-IO knows names of this file system.
 *
 * Finds the MPI that the program is linked to, and runs its mpiexec with the library of src/mpiio
 * in LD_PRELOAD of all processes. Errors: printed; else this process becomes mpiexec. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "commands/commands.h"

enum { OPT_N, OPT_MPI, OPT_MPIEXEC };

static const struct mpi {
	const char *name, *soname; /* of its library, in programs */
	const char *mpiexec;
} mpis[] = {
	{ "mpich", "libmpich.so.", "mpiexec.mpich" },
	{ "openmpi", "libmpi.so.", "mpiexec.openmpi" },
};

static const struct mpi *mpi_by_name(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(mpis); i++)
		if (strcmp(mpis[i].name, name) == 0)
			return &mpis[i];
	return NULL;
}

/* Finds a file as a shell does; "": there is none. */
static void find_in_path(const char *name, char out[CLI_PATH_MAX])
{
	const char *path = getenv("PATH"), *end;

	snprintf(out, CLI_PATH_MAX, "%s", name);
	if (strchr(name, '/'))
		return;
	for (; path && *path; path = *end ? end + 1 : end) {
		end = strchrnul(path, ':');
		if ((size_t)snprintf(out, CLI_PATH_MAX, "%.*s/%s", (int)(end - path), path, name) <
			    CLI_PATH_MAX &&
		    access(out, X_OK) == 0)
			return;
	}
	*out = 0;
}

/* The MPI whose library the program names; NULL: none, as in a script. */
static const struct mpi *mpi_of_program(const char *program)
{
	const struct mpi *found = NULL;
	char path[CLI_PATH_MAX];
	struct stat st;
	void *p = MAP_FAILED;
	int fd;

	find_in_path(program, path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) == 0 && st.st_size)
		p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		return NULL;
	for (size_t i = 0; !found && i < ARRAY_LEN(mpis); i++)
		if (memmem(p, (size_t)st.st_size, mpis[i].soname, strlen(mpis[i].soname)))
			found = &mpis[i];
	munmap(p, (size_t)st.st_size);
	return found;
}

/* The MPI of this mpiexec, by what it says about itself. */
static const struct mpi *mpi_of_mpiexec(const char *mpiexec)
{
	char line[256 + CLI_PATH_MAX], text[4096];
	size_t n;
	FILE *f;

	snprintf(line, sizeof(line), "%s --version 2>/dev/null", mpiexec);
	f = popen(line, "re");
	if (!f)
		return NULL;
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = 0;
	pclose(f);
	return strstr(text, "HYDRA") ? mpi_by_name("mpich") :
	       strcasestr(text, "open mpi") || strcasestr(text, "openrte") ?
				       mpi_by_name("openmpi") :
				       NULL;
}

/* Beside the program in a build, in a library directory after an installation. */
static bool find_library(const struct mpi *m, char out[CLI_PATH_MAX])
{
	static const char *const places[] = { "../lib", "../" SHEAF_LIBDIR };
	char self[CLI_PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n <= 0)
		return false;
	self[n] = 0;
	*strrchr(self, '/') = 0;
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		char path[2 * CLI_PATH_MAX];

		snprintf(path, sizeof(path), "%s/%s/libsheaf-mpiio-%s.so.1", self, places[i],
			 m->name);
		if (realpath(path, out))
			return true;
	}
	return false;
}

static const struct mpi *choose(struct cli *c, const char *mpiexec)
{
	const struct mpi *m;

	if (c->opt[OPT_MPI])
		return mpi_by_name(c->opt[OPT_MPI]);
	m = mpi_of_program(c->args[0]);
	return m ? m : mpi_of_mpiexec(mpiexec ? mpiexec : "mpiexec");
}

/* LD_PRELOAD with our library before what is there already. */
static void preload(const char *library, char *out, size_t n)
{
	const char *old = getenv("LD_PRELOAD");

	snprintf(out, n, "%s%s%s", library, old && *old ? ":" : "", old ? old : "");
}

#define MAX_WORDS 64

/* Splits the words of a command at spaces. */
static int words(char *text, char **argv)
{
	char *save, *w;
	int n = 0;

	for (w = strtok_r(text, " ", &save); w && n < MAX_WORDS; w = strtok_r(NULL, " ", &save))
		argv[n++] = w;
	return n;
}

/* The processes get both variables also on other hosts. */
static int add_environment(const struct mpi *m, char **argv, int n, char *load, char *conf)
{
	static char set[2 * CLI_PATH_MAX + 32], set_conf[CLI_PATH_MAX + 32];

	if (strcmp(m->name, "mpich") == 0) {
		argv[n++] = "-genv";
		argv[n++] = "LD_PRELOAD";
		argv[n++] = load;
		if (*conf) {
			argv[n++] = "-genv";
			argv[n++] = "SHEAF_CONF";
			argv[n++] = conf;
		}
		return n;
	}
	snprintf(set, sizeof(set), "LD_PRELOAD=%s", load);
	argv[n++] = "-x";
	argv[n++] = set;
	if (*conf) {
		snprintf(set_conf, sizeof(set_conf), "SHEAF_CONF=%s", conf);
		argv[n++] = "-x";
		argv[n++] = set_conf;
	}
	return n;
}

/* The cluster file by its whole path; "": the default search finds it on each host. */
static int conf_path(struct cli *c, char out[CLI_PATH_MAX])
{
	const char *given = c->conf ? c->conf : getenv("SHEAF_CONF");

	*out = 0;
	if (!given || !*given)
		return CLI_OK;
	if (strncmp(given, "local:", 6) == 0)
		return cli_error(c, "%s: several processes cannot share a local file system",
				 given);
	if (!realpath(given, out))
		return cli_fail_host(c, given, -errno);
	return CLI_OK;
}

static int run_mpirun(struct cli *c)
{
	static char load[2 * CLI_PATH_MAX], conf[CLI_PATH_MAX], library[CLI_PATH_MAX];
	char *command = c->opt[OPT_MPIEXEC] ? strdup(c->opt[OPT_MPIEXEC]) : NULL;
	char **argv = calloc(MAX_WORDS + (size_t)c->n_args + 16, sizeof(*argv));
	const struct mpi *m = choose(c, command);
	char program[CLI_PATH_MAX];
	int n = 0;

	find_in_path(c->args[0], program);
	if (access(program, F_OK))
		return cli_error(c, "%s: there is no such program", c->args[0]);
	if (c->opt[OPT_MPI] && !m)
		return cli_usage(c, "--mpi is mpich or openmpi, not '%s'", c->opt[OPT_MPI]);
	if (!m)
		return cli_error(c,
				 "%s names no MPI library, and no mpiexec was found: say which "
				 "one with --mpi mpich or --mpi openmpi",
				 c->args[0]);
	if (!find_library(m, library))
		return cli_error(c,
				 "libsheaf-mpiio-%s is not installed: install the package of "
				 "that name, or build Sheaf where %s is installed",
				 m->name, m->name);
	if (!argv || conf_path(c, conf))
		return argv ? CLI_FAILED : cli_fail(c, "arguments", -ENOMEM);
	if (command)
		n = words(command, argv);
	if (!n) {
		find_in_path(m->mpiexec, load);
		argv[n++] = *load ? (char *)(uintptr_t)m->mpiexec : "mpiexec";
	}
	preload(library, load, sizeof(load));
	if (c->opt[OPT_N]) {
		argv[n++] = "-n";
		argv[n++] = (char *)(uintptr_t)c->opt[OPT_N];
	}
	n = add_environment(m, argv, n, load, conf);
	for (int i = 0; i < c->n_args; i++)
		argv[n++] = c->args[i];
	signal(SIGPIPE, SIG_DFL); /* ignored by this program, and exec would hand that on */
	execvp(argv[0], argv);
	return cli_fail_host(c, argv[0], -errno);
}

const struct cli_command cmd_mpirun = {
	.name = "mpirun",
	.usage = "[-n N] [--mpi NAME] [--mpiexec COMMAND] PROGRAM [ARGUMENT...]",
	.summary = "run an MPI program that opens files as sheaf:/path",
	.run = run_mpirun,
	.min_args = 1,
	.max_args = -1,
	.ends_at_argument = true,
	.options = { { 'n', NULL, "N", "processes" },
		     { 0, "mpi", "NAME", "mpich or openmpi (that of the program)" },
		     { 0, "mpiexec", "COMMAND", "how to start it, with options of its own" } },
	.more = "The program is not rebuilt: a library in LD_PRELOAD overrides its MPI_File_* calls for\n"
		"names sheaf:/path and for files on a mount. docs/mpi.md says more.\n",
	.examples = "  sheaf mpirun -n 4 ./app sheaf:/results\n"
		    "  sheaf mpirun --mpiexec 'mpiexec.openmpi --oversubscribe' -n 8 ./app\n",
};
