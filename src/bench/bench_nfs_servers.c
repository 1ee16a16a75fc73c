/* The servers of `sheaf bench nfs`, on the host of server 0: the gateway; and NFS-Ganesha, which
 * exports a `sheaf mount` and a directory beside the storage.
 *
 * Processes: sheaf-nfsd; Ganesha in a namespace of processes with a portmapper, which it insists
 * on. The portmapper has a network of its own, and its Unix socket in a /run that only the two see:
 * neither touches the portmapper of the machine. bench_nfs_end() ends all, also after a failure or
 * a signal. Errors: messages quote the last line of the programs' log. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench_nfs.h"

#define START_NS (15 * NSEC_PER_SEC) /* time limit for a server to accept connections */
#define END_NS (5 * NSEC_PER_SEC) /* time limit for a process to exit */

struct bench_nfs_side bench_nfs_sides[BENCH_NFS_SIDES] = { { .name = "gateway" },
							   { .name = "ganesha on mount" },
							   { .name = "ganesha local" } };
static pid_t gateway, ganesha;

static const char ganesha_script[] =
	"mount -t tmpfs tmpfs /run && mkdir /run/ganesha || exit 1\n"
	"unshare -n rpcbind -f &\n"
	"for i in $(seq 500); do test -S /run/rpcbind.sock && break; sleep 0.01; done\n"
	"exec ganesha.nfsd -F -f \"$1\" -L /dev/stderr -p /run/ganesha.pid";

static const char ganesha_conf[] =
	"NFS_CORE_PARAM { Protocols = 3; NFS_Port = %u; MNT_Port = %u; Enable_NLM = false;\n"
	"  Enable_RQUOTA = false; Enable_UDP = false; mount_path_pseudo = false; }\n"
	"NFSv4 { Graceless = true; RecoveryRoot = /run/ganesha; }\n"
	"EXPORT { Export_Id = 1; Path = %s; Pseudo = /mounted; Access_Type = RW;\n"
	"  Squash = No_Root_Squash; Protocols = 3; SecType = sys; Transports = TCP;\n"
	"  FSAL { Name = VFS; } }\n"
	"EXPORT { Export_Id = 2; Path = %s; Pseudo = /local; Access_Type = RW;\n"
	"  Squash = No_Root_Squash; Protocols = 3; SecType = sys; Transports = TCP;\n"
	"  FSAL { Name = VFS; } }\n"
	"LOG { Default_Log_Level = CRIT; }\n";

/* ---- what this machine has ---- */

static bool is_program(const char *name)
{
	char path[CLI_PATH_MAX], dirs[] = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin", *save;

	for (char *d = strtok_r(dirs, ":", &save); d; d = strtok_r(NULL, ":", &save)) {
		snprintf(path, sizeof(path), "%s/%s", d, name);
		if (access(path, X_OK) == 0)
			return true;
	}
	return false;
}

const char *bench_nfs_other_missing(struct bench *b)
{
	if (!is_program("ganesha.nfsd"))
		return "NFS-Ganesha is not there: apt install nfs-ganesha nfs-ganesha-vfs";
	if (!is_program("rpcbind"))
		return "NFS-Ganesha needs a portmapper: apt install rpcbind";
	if (geteuid() != 0)
		return "only root can run NFS-Ganesha";
	return bench_mount_missing(b);
}

/* ---- addresses ---- */

/* Ports of the host of server 0: of the gateway, and two of Ganesha. */
static int choose_ports(struct bench *b, struct sockaddr_in *at)
{
	uint32_t port;
	int r = bench_hosts_enter(b, 0);

	port = r ? 0 : bench_find_ports(3);
	if (!r)
		r = bench_hosts_enter(b, -1);
	for (uint32_t i = 0; i < 3; i++)
		at[i] = (struct sockaddr_in){ .sin_family = AF_INET,
					      .sin_addr = bench_hosts_address(b, 0),
					      .sin_port = htons((uint16_t)(port + i)) };
	return r ? r : port ? 0 : -EADDRINUSE;
}

int bench_nfs_choose(struct bench *b)
{
	struct sockaddr_in at[3];
	int r = choose_ports(b, at);

	if (r)
		return cli_fail_host(b->c, "no ports for the NFS servers", r), r;
	for (int i = 0; i < BENCH_NFS_SIDES; i++) {
		struct bench_nfs_side *s = &bench_nfs_sides[i];

		s->nfs = at[i > 0];
		s->mount = at[i > 0 ? 2 : 0];
		s->is_there = false;
	}
	return 0;
}

/* ---- starting ---- */

/* Waits until the process accepts connections. */
static int await(struct bench *b, const char *name, pid_t *pid, const struct sockaddr_in *at)
{
	const struct timespec pause = { 0, 10000000 };
	uint64_t end = time_now() + START_NS;
	int fd;

	while ((fd = bench_raw_connect(at)) < 0) {
		if (waitpid(*pid, NULL, WNOHANG) != 0) {
			*pid = 0;
			return bench_program_fail(b, name, -EIO);
		}
		if (cli_signal)
			return -EINTR;
		if (time_now() > end)
			return bench_program_fail(b, name, -ETIMEDOUT);
		nanosleep(&pause, NULL);
	}
	close(fd);
	return 0;
}

static int start(struct bench *b, const char *program, const char *const *argv, pid_t *pid)
{
	*pid = bench_program_start(b, program, argv);
	if (*pid > 0)
		return 0;
	cli_fail_host(b->c, program, (int)*pid);
	return (int)*pid;
}

static int export_all(struct bench *b)
{
	FILE *f = fopen(b->place.conf_path, "ae");
	int r = f ? 0 : -errno;

	if (f) {
		fputs("\n[export.bench]\npath = /\nsquash = none\ninsecure = yes\n", f);
		r = fclose(f) ? -errno : 0;
	}
	if (r)
		cli_fail_host(b->c, b->place.conf_path, r);
	return r;
}

static int start_gateway(struct bench *b)
{
	struct bench_nfs_side *s = &bench_nfs_sides[BENCH_NFS_GATEWAY];
	char program[CLI_PATH_MAX], address[64], host[INET_ADDRSTRLEN];
	const char *const argv[] = { "sheaf-nfsd",  "--conf", b->place.conf_path,
				     "--address",   address,  "--no-portmap",
				     "--log-level", "warn",   NULL };
	int r = export_all(b);

	inet_ntop(AF_INET, &s->nfs.sin_addr, host, sizeof(host));
	snprintf(address, sizeof(address), "%s:%u", host, ntohs(s->nfs.sin_port));
	snprintf(s->path, sizeof(s->path), "/bench%.64s/gateway", b->place.scratch);
	cli_find_program("sheaf-nfsd", program);
	if (!r)
		r = start(b, program, argv, &gateway);
	if (!r)
		r = await(b, s->name, &gateway, &s->nfs);
	s->is_there = !r;
	return r;
}

static int put_ganesha_conf(struct bench *b, const char *path)
{
	const struct bench_nfs_side *s = &bench_nfs_sides[BENCH_NFS_ON_MOUNT];
	FILE *f = fopen(path, "we");
	int r = f ? 0 : -errno;

	if (f) {
		fprintf(f, ganesha_conf, ntohs(s->nfs.sin_port), ntohs(s->mount.sin_port),
			b->sides[BENCH_SHEAF].point, bench_nfs_sides[BENCH_NFS_LOCAL].path);
		r = fclose(f) ? -errno : 0;
	}
	if (r)
		cli_fail_host(b->c, path, r);
	return r;
}

/* The mount is there before the namespace, which has a copy of all mounts. */
static int start_ganesha(struct bench *b)
{
	struct bench_nfs_side *on_mount = &bench_nfs_sides[BENCH_NFS_ON_MOUNT];
	struct bench_nfs_side *local = &bench_nfs_sides[BENCH_NFS_LOCAL];
	char conf[CLI_PATH_MAX];
	const char *const argv[] = { "unshare",	     "-m",	     "-p", "-f",
				     "--kill-child", "--mount-proc", "sh", "-c",
				     ganesha_script, "sh",	     conf, NULL };
	int r = bench_mount_open(b);

	snprintf(conf, sizeof(conf), "%s/ganesha.conf", b->place.dir);
	snprintf(local->path, sizeof(local->path), "%.1000s/local", b->place.dir);
	snprintf(on_mount->path, sizeof(on_mount->path), "%.1000s/on-mount",
		 b->sides[BENCH_SHEAF].dir);
	if (!r)
		r = bench_make_dir(b, local->path);
	if (!r)
		r = bench_make_dir(b, on_mount->path);
	if (!r)
		r = put_ganesha_conf(b, conf);
	if (!r)
		r = start(b, "unshare", argv, &ganesha);
	if (!r)
		r = await(b, "NFS-Ganesha", &ganesha, &on_mount->mount);
	on_mount->is_there = local->is_there = !r;
	return r;
}

int bench_nfs_start(struct bench *b)
{
	char path[CLI_PATH_MAX];
	int r;

	snprintf(path, sizeof(path), "%s/gateway", b->place.scratch);
	r = sheaf_mkdir(b->c->fs, path, 0700);
	if (r) {
		cli_fail(b->c, path, r);
		return r;
	}
	r = bench_hosts_enter(b, 0);
	if (!r)
		r = start_gateway(b);
	if (!r && !bench_nfs_other_missing(b))
		r = start_ganesha(b);
	return bench_hosts_enter(b, -1) && !r ? -EPERM : r;
}

/* ---- ending ---- */

void bench_nfs_end(struct bench *b)
{
	if (ganesha > 0) /* with all of its namespace */
		kill(ganesha, SIGKILL);
	bench_end_process(&ganesha, time_now() + END_NS);
	if (gateway > 0)
		kill(gateway, SIGTERM);
	bench_end_process(&gateway, time_now() + END_NS);
	bench_fuse_close(b);
}

double bench_nfs_memory(void)
{
	return bench_fuse_memory(&(struct bench_side){ .pid = gateway });
}
