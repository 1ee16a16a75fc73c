/* The mappings of this process: by the PROCMAP_QUERY ioctl (kernel 6.11), one call for each, or
 * from the text of /proc/self/maps.
 *
 * Threads: any. Buffers: none. Errors: -errno. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "reg/reg_impl.h"

/* As in <linux/fs.h> of kernel 6.11; Debian 12's headers are older. */
struct procmap_query_arg {
	uint64_t size, query_flags, query_addr;
	uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
	uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
	uint64_t vma_name_addr, build_id_addr;
};
#define QUERY_IOCTL _IOWR('f', 17, struct procmap_query_arg)
#define QUERY_OR_NEXT 0x10
#define IS_READABLE 1
#define IS_WRITABLE 2
#define IS_SHARED 8

int maps_open(void)
{
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* One line: "start-end rwxp offset dev:dev inode ...". */
static bool parse(const char *line, struct mapping *m)
{
	unsigned long start, end, inode;
	unsigned major, minor;
	char rights[5];

	if (sscanf(line, "%lx-%lx %4s %*x %x:%x %lu", &start, &end, rights, &major, &minor,
		   &inode) != 6)
		return false;
	*m = (struct mapping){ .at = { start, end },
			       .is_readable = rights[0] == 'r',
			       .is_writable = rights[1] == 'w',
			       .is_private_memory = rights[3] == 'p' && !inode && !major &&
						    !minor };
	return true;
}

int maps_walk_text(int fd, struct span s, bool (*fn)(void *arg, const struct mapping *m), void *arg)
{
	char line[512];
	struct mapping m;
	bool goes_on = true;
	FILE *f;

	(void)fd; /* its position is shared by threads */
	f = fopen("/proc/self/maps", "re");
	if (!f)
		return -errno;
	while (goes_on && fgets(line, sizeof(line), f)) {
		size_t n = strlen(line);

		if (parse(line, &m) && m.at.start < s.end) {
			if (m.at.end > s.start)
				goes_on = fn(arg, &m);
		}
		while (n && line[n - 1] != '\n' && fgets(line, sizeof(line), f))
			n = strlen(line); /* the rest of a long name */
	}
	fclose(f);
	return 0;
}

int maps_walk(int fd, struct span s, bool (*fn)(void *arg, const struct mapping *m), void *arg)
{
	struct procmap_query_arg q;
	struct mapping m;

	for (uintptr_t at = s.start; at < s.end; at = m.at.end) {
		q = (struct procmap_query_arg){ .size = sizeof(q),
						.query_flags = QUERY_OR_NEXT,
						.query_addr = at };
		if (ioctl(fd, QUERY_IOCTL, &q) < 0) {
			if (errno == ENOENT) /* no mapping here or above */
				return 0;
			return maps_walk_text(fd, (struct span){ at, s.end }, fn, arg);
		}
		m = (struct mapping){ .at = { q.vma_start, q.vma_end },
				      .is_readable = q.vma_flags & IS_READABLE,
				      .is_writable = q.vma_flags & IS_WRITABLE,
				      .is_private_memory = !(q.vma_flags & IS_SHARED) && !q.inode &&
							   !q.dev_major && !q.dev_minor };
		if (m.at.start >= s.end || !fn(arg, &m))
			return 0;
	}
	return 0;
}
