/* The first process of a guest of vm.py: mounts the host's files read-only below an overlay in
 * memory, runs one command on them and sends its output and exit status to the host.
 *
 * The initramfs has /modules (lines of kernel modules, in the order of loading) and /job (strings
 * that end with NUL: folder, number of arguments, arguments, environment). Without /job the guest
 * only reports that it came up. Output goes to the first virtio port in frames: a byte for the kind
 * ('1' stdout, '2' stderr, 'x' exit status, '!' what failed here), four bytes of length, low byte
 * first, then the data.
 *
 * Threads: one. Errors: each one is reported in a frame '!', then the guest stops. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STRINGS 4096 /* most arguments and variables of a job */
#define OUT 0 /* index in pipes */
#define ERR 1

static int port = -1;

static void stop(void)
{
	sync();
	reboot(RB_POWER_OFF);
	for (;;)
		pause();
}

static void send_frame(char kind, const char *data, size_t n)
{
	unsigned char head[5] = { (unsigned char)kind, n & 255, n >> 8 & 255, n >> 16 & 255,
				  n >> 24 & 255 };
	ssize_t r;

	if (port < 0 || write(port, head, sizeof(head)) != sizeof(head))
		stop();
	for (; n; data += r, n -= (size_t)r) {
		r = write(port, data, n);
		if (r <= 0)
			stop();
	}
}

/* Reports what failed and why, then stops the guest. */
__attribute__((format(printf, 1, 2))) static void fail(const char *format, ...)
{
	char text[512];
	int e = errno, n;
	va_list ap;

	va_start(ap, format);
	n = vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	n += snprintf(text + n, sizeof(text) - (size_t)n, ": %s", strerror(e));
	fprintf(stderr, "vm_init: %s\n", text);
	send_frame('!', text, (size_t)n);
	stop();
}

static void mount_at(const char *type, const char *source, const char *dir, unsigned long flags,
		     const char *options)
{
	mkdir(dir, 0755);
	if (mount(source, dir, type, flags, options) < 0)
		fail("cannot mount %s on %s", type ? type : source, dir);
}

/* All of a small file and its size; NULL if it does not exist. */
static char *read_file(const char *path, size_t *size)
{
	struct stat st;
	char *text;
	int fd = open(path, O_RDONLY);

	if (fd < 0)
		return NULL;
	fstat(fd, &st);
	text = calloc(1, (size_t)st.st_size + 1);
	if (read(fd, text, (size_t)st.st_size) != st.st_size)
		fail("cannot read %s", path);
	close(fd);
	*size = (size_t)st.st_size;
	return text;
}

static void load_modules(void)
{
	size_t size;
	char *list = read_file("/modules", &size);

	for (char *name = strtok(list, "\n"); name; name = strtok(NULL, "\n")) {
		int fd = open(name, O_RDONLY);

		if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST))
			fail("cannot load %s", name);
		close(fd);
	}
}

/* The device is there some moments after its driver; its name has the number of the virtio device. */
static void open_port(void)
{
	glob_t found;

	for (int i = 0; i < 1000 && port < 0; i++) {
		if (glob("/dev/vport*", 0, NULL, &found) == 0)
			port = open(found.gl_pathv[0], O_WRONLY | O_CLOEXEC);
		if (port < 0)
			usleep(10000);
	}
	if (port < 0)
		fail("cannot open the port to the host");
}

/* The host's files with an overlay are the root of the command. */
static void enter_root(void)
{
	static const char *const keep[] = { "/dev", "/proc", "/sys" };

	mount_at("9p", "root", "/host", MS_RDONLY,
		 "trans=virtio,version=9p2000.L,cache=loose,msize=262144");
	mount_at("tmpfs", "memory", "/memory", 0, "size=90%");
	mkdir("/memory/upper", 0755);
	mkdir("/memory/work", 0755);
	mount_at("overlay", "root", "/root", 0,
		 "lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work");
	for (size_t i = 0; i < sizeof(keep) / sizeof(keep[0]); i++) {
		char to[16];

		snprintf(to, sizeof(to), "/root%s", keep[i]);
		mount_at(NULL, keep[i], to, MS_MOVE, NULL);
	}
	if (chroot("/root") < 0)
		fail("cannot enter the root");
}

/* In the child: becomes the command. */
static void run(char **s, int (*pipes)[2])
{
	long n = strtol(s[1], NULL, 10);
	char **argv = calloc((size_t)n + 1, sizeof(*argv));

	memcpy(argv, s + 2, (size_t)n * sizeof(*argv));
	dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
	dup2(pipes[OUT][1], 1);
	dup2(pipes[ERR][1], 2);
	setsid();
	environ = s + 2 + n;
	if (chdir(s[0]) == 0)
		execv(argv[0], argv);
	fprintf(stderr, "vm_init: cannot run %s in %s: %s\n", argv[0], s[0], strerror(errno));
	_exit(127);
}

/* Sends what is in the pipe, one buffer at most. False: nothing was there. */
static bool pass_on(struct pollfd *p, char kind)
{
	static char data[1 << 16];
	ssize_t n = p->fd < 0 ? 0 : read(p->fd, data, sizeof(data));

	if (n > 0)
		send_frame(kind, data, (size_t)n);
	if (n == 0)
		p->fd = -1; /* closed by all writers: poll() would return at once */
	return n > 0;
}

/* Passes output on until the child has ended. What its own children write later is lost. */
static int watch(pid_t child, int out, int err)
{
	struct pollfd p[2] = { { .fd = out, .events = POLLIN }, { .fd = err, .events = POLLIN } };
	int status = 0;
	pid_t pid;

	do {
		poll(p, 2, 20);
		pass_on(&p[OUT], '1');
		pass_on(&p[ERR], '2');
		do
			pid = waitpid(-1, &status, WNOHANG);
		while (pid > 0 && pid != child);
	} while (pid != child);
	while (pass_on(&p[OUT], '1') || pass_on(&p[ERR], '2'))
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int run_job(char *job, size_t size)
{
	static char *s[STRINGS + 1];
	int pipes[2][2], n = 0;
	pid_t child;

	for (char *p = job; p < job + size && n < STRINGS; p += strlen(p) + 1)
		s[n++] = p;
	for (int i = 0; i < 2; i++)
		if (pipe2(pipes[i], O_CLOEXEC) < 0 || fcntl(pipes[i][0], F_SETFL, O_NONBLOCK) < 0)
			fail("cannot make pipes");
	child = fork();
	if (child == 0)
		run(s, pipes);
	close(pipes[OUT][1]);
	close(pipes[ERR][1]);
	return watch(child, pipes[OUT][0], pipes[ERR][0]);
}

int main(void)
{
	size_t size = 0;
	char text[16], *job = read_file("/job", &size);
	int status = 0;

	mount_at("devtmpfs", "dev", "/dev", 0, NULL);
	mount_at("proc", "proc", "/proc", 0, NULL);
	mount_at("sysfs", "sys", "/sys", 0, NULL);
	sethostname("guest", 5);
	load_modules();
	open_port();
	if (job) {
		enter_root();
		status = run_job(job, size);
	}
	send_frame('x', text, (size_t)snprintf(text, sizeof(text), "%d", status));
	stop();
}
