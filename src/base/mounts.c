/* Mounted Sheaf file systems of this host, as the kernel lists them, and how to reach their daemons. */
#include "base/base.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

/* As mountinfo writes a path: "\040" is a space. */
static void unescape(char *s)
{
	char *out = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] && s[3]) {
			*out++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*out++ = *s;
		}
	}
	*out = 0;
}

int mount_find(const char *dir, char dev[MOUNT_DEV])
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char *line = NULL, at[PATH_MAX], found[MOUNT_DEV];
	size_t room = 0;
	int r = -ENOENT;

	if (!f)
		return -errno;
	while (getline(&line, &room, f) > 0) { /* the last one lies on top */
		if (sscanf(line, "%*d %*d %31s %*s %4095s", found, at) != 2 ||
		    !strstr(line, " - fuse.sheaf "))
			continue;
		unescape(at);
		if (strcmp(at, dir) != 0)
			continue;
		strcpy(dev, found);
		r = 0;
	}
	free(line);
	fclose(f);
	return r;
}

int mount_control(const char *dir, struct sockaddr_un *a, unsigned *len)
{
	char dev[MOUNT_DEV];
	int r = mount_find(dir, dev);

	if (r)
		return r;
	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	*len = (unsigned)(offsetof(struct sockaddr_un, sun_path) + 1 +
			  (size_t)snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1,
					   "sheaf-mount:%s", dev));
	return 0;
}
