/* Options: those of the command line, and those after -o: our own, those of fstab that have no
 * meaning here, and the rest, which goes to the kernel and libfuse. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "mount/mount_priv.h"

static const char usage_text[] =
	"usage: sheaf-mount [--conf FILE|local:DIR] [-f] [-o OPTIONS] DIR\n"
	"       sheaf-mount --takeover DIR\n"
	"What `sheaf mount` runs; see sheaf-mount(8).\n";

static int complain(const char *fmt, ...)
{
	va_list ap;

	fputs("sheaf mount: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return 2;
}

/* The text after `name` ("NAME=") in an option; or NULL. */
static const char *value_of(const char *opt, const char *name)
{
	size_t n = strlen(name);

	return strncmp(opt, name, n) == 0 ? opt + n : NULL;
}

static int seconds(const char *opt, const char *text, double *out)
{
	char *end;

	*out = strtod(text, &end);
	if (end == text || *end || !(*out >= 0 && *out <= 86400))
		return complain("-o %s: not a number of seconds", opt);
	return 0;
}

/* True for options that libfuse must not get: those handled here, by mount(8) or by systemd, and
 * those for file systems that keep times in memory. */
static bool is_for_others(const char *opt)
{
	static const char *const words[] = { "auto",  "noauto", "user",	    "users",	 "nouser",
					     "owner", "group",	"_netdev",  "nofail",	 "defaults",
					     "rw",    "ro",	"lazytime", "nolazytime" };

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (strcmp(opt, words[i]) == 0)
			return true;
	return strncmp(opt, "x-", 2) == 0 || strncmp(opt, "comment=", 8) == 0;
}

static int add_fuse(struct mount_opts *o, const char *opt)
{
	size_t n = strlen(o->fuse);

	if (n + strlen(opt) + 2 > sizeof(o->fuse))
		return complain("the options are too long");
	snprintf(o->fuse + n, sizeof(o->fuse) - n, ",%s", opt);
	return 0;
}

static int set_text(char *out, size_t n, const char *text, const char *what)
{
	if (strlen(text) >= n)
		return complain("%s is too long", what);
	strcpy(out, text);
	return 0;
}

/* Records a kernel flag that a remount can change. */
static void take_flag(struct mount_opts *o, const char *opt)
{
	static const struct {
		const char *on, *off;
		unsigned long flag;
	} table[] = { { "ro", "rw", MS_RDONLY },
		      { "nosuid", "suid", MS_NOSUID },
		      { "nodev", "dev", MS_NODEV },
		      { "noexec", "exec", MS_NOEXEC },
		      { "sync", "async", MS_SYNCHRONOUS } };

	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		bool on = strcmp(opt, table[i].on) == 0;

		if (!on && strcmp(opt, table[i].off) != 0)
			continue;
		o->flags_on = (o->flags_on & ~table[i].flag) | (on ? table[i].flag : 0);
		o->flags_off = (o->flags_off & ~table[i].flag) | (on ? 0 : table[i].flag);
	}
	o->read_only = o->flags_on & MS_RDONLY;
}

/* True for options of the daemon, which are fixed when it starts. */
static bool is_daemons(const char *opt)
{
	static const char *const words[] = { "entry=", "attr=", "memory=", "log=" };

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (value_of(opt, words[i]))
			return true;
	return strcmp(opt, "writeback") == 0 || strcmp(opt, "nodirect") == 0;
}

/* One option after -o. */
static int take_option(struct mount_opts *o, const char *opt)
{
	const char *v;

	if (is_daemons(opt))
		snprintf(o->fixed, sizeof(o->fixed), "%.63s", opt);
	if ((v = value_of(opt, "conf=")))
		return set_text(o->conf, sizeof(o->conf), v, "conf=");
	if ((v = value_of(opt, "log=")))
		return set_text(o->log, sizeof(o->log), v, "log=");
	if ((v = value_of(opt, "entry=")))
		return seconds(opt, v, &o->entry_s);
	if ((v = value_of(opt, "attr=")))
		return seconds(opt, v, &o->attr_s);
	if ((v = value_of(opt, "memory=")))
		return parse_size(v, &o->memory) || o->memory < 8 * MIB ?
			       complain("-o %s: not a size of 8M or more", opt) :
			       0;
	take_flag(o, opt);
	if (strcmp(opt, "remount") == 0)
		o->remount = true;
	else if (strcmp(opt, "writeback") == 0)
		o->writeback = true;
	else if (strcmp(opt, "nodirect") == 0)
		o->no_direct = true;
	else if (strcmp(opt, "noatime") == 0)
		o->atime = ATIME_NEVER;
	else if (strcmp(opt, "relatime") == 0 || strcmp(opt, "atime") == 0)
		o->atime = ATIME_RELATIVE;
	else if (strcmp(opt, "strictatime") == 0)
		o->atime = ATIME_ALWAYS;
	else if (strcmp(opt, "nodiratime") == 0 || strcmp(opt, "diratime") == 0)
		o->no_dir_atime = opt[0] == 'n';
	else if (*opt && !is_for_others(opt))
		return add_fuse(o, opt);
	return 0;
}

static int take_options(struct mount_opts *o, const char *text)
{
	char *copy = strdup(text), *at = copy, *opt;
	int r = copy ? 0 : complain("out of memory");

	while (!r && (opt = strsep(&at, ",")))
		r = take_option(o, opt);
	free(copy);
	return r;
}

/* Resolves the directory to mount on, which must not be a mounted Sheaf file system. For a takeover
 * or remount, resolves only the name. */
static int find_dir(struct mount_opts *o)
{
	static const char died[] = "its daemon has died: 'sheaf umount' removes the mount";
	char found[PATH_MAX], dev[MOUNT_DEV], *dir = o->dir;
	struct statvfs vfs;
	struct stat st;

	if (!realpath(dir, found) || (!o->takeover && !o->remount && stat(found, &st)))
		return complain("%s: %s", dir, errno == ENOTCONN ? died : error_text(errno));
	strcpy(dir, found);
	if (o->takeover || o->remount)
		return 0;
	/* stat() may succeed on a dead mount: the kernel caches its attributes for a while. */
	if (mount_find(dir, dev) == 0)
		return complain("%s: %s", dir,
				statvfs(dir, &vfs) && errno == ENOTCONN ?
					died :
					"it is a mounted Sheaf file system already");
	return S_ISDIR(st.st_mode) ? 0 : complain("%s is not a directory", dir);
}

/* Makes a relative name absolute: the daemon runs in the root directory. */
static int find_conf(struct mount_opts *o)
{
	char found[PATH_MAX], err[PATH_MAX + 256], here[PATH_MAX] = "";
	const char *path = found, *prefix = "";

	if (conf_find(o->conf[0] ? o->conf : NULL, found, sizeof(found), err, sizeof(err)))
		return complain("%s", err);
	if (strncmp(found, "local:", 6) == 0) {
		path += 6;
		prefix = "local:";
	}
	if ((*path != '/' && !getcwd(here, sizeof(here))) ||
	    snprintf(o->conf, sizeof(o->conf), "%s%s%s%s", prefix, here, here[0] ? "/" : "",
		     path) >= (int)sizeof(o->conf))
		return complain("%s: its name is too long", path);
	return 0;
}

int mount_opts_parse(int argc, char **argv, struct mount_opts *o)
{
	static const struct option table[] = { { "conf", required_argument, NULL, 'c' },
					       { "foreground", no_argument, NULL, 'f' },
					       { "takeover", no_argument, NULL, 't' },
					       { "help", no_argument, NULL, 'h' },
					       { 0 } };
	int c, r = 0;

	*o = (struct mount_opts){
		.atime = ATIME_RELATIVE, .entry_s = 1, .attr_s = 1, .memory = 128 * MIB
	};
	while (!r && (c = getopt_long(argc, argv, "fo:h", table, NULL)) != -1) {
		if (c == 'c')
			r = set_text(o->conf, sizeof(o->conf), optarg, "--conf");
		else if (c == 'f')
			o->foreground = true;
		else if (c == 't')
			o->takeover = true;
		else if (c == 'o')
			r = take_options(o, optarg);
		else if (c == 'h')
			return fputs(usage_text, stdout) < 0 ? 1 : -1;
		else
			r = 2;
	}
	if (!r && argc - optind != 1)
		r = complain("exactly one directory is needed; see --help");
	if (!r)
		r = set_text(o->dir, sizeof(o->dir), argv[optind], "the directory");
	if (r)
		return r;
	r = find_dir(o);
	if (!r && !o->takeover && !o->remount) /* the running daemon has the cluster file */
		r = find_conf(o);
	return r ? 1 : 0;
}

void mount_switch_direct(const struct mount_opts *o)
{
	setenv("SHEAF_DIRECT", o->no_direct ? "off" : "on", o->no_direct);
}
