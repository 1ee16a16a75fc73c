/* Random changes of the names in one directory that only its owner touches: whatever breaks meanwhile, each
 * change must have happened exactly once, so every answer can be foretold. */
#ifndef SHEAF_SYS_NAMES_MODEL_H
#define SHEAF_SYS_NAMES_MODEL_H

#include "cluster.h"

#define NAMES 40

struct names {
	struct sheaf *fs;
	char dir[32];
	uint64_t rnd;
	uint8_t kind[NAMES]; /* 0: nothing, 1: a file, 2: a directory */
};

static inline void name_of(char *out, const struct names *m, int i)
{
	snprintf(out, 64, "%s/n%d", m->dir, i);
}

static inline void names_create(struct names *m, int a)
{
	struct sheaf_file *f;
	char p[64];
	int r;

	name_of(p, m, a);
	CHECK_EQ(sheaf_open(m->fs, p, O_CREAT | O_EXCL | O_WRONLY, 0644, NULL, &f),
		 m->kind[a] ? -EEXIST : 0);
	if (m->kind[a])
		return;
	r = sheaf_close(f);
	CHECK(r == 0 || r == -EIO);
	m->kind[a] = 1;
}

static inline void names_unlink(struct names *m, int a)
{
	static const int answer[] = { -ENOENT, 0, -EISDIR };
	char p[64];

	name_of(p, m, a);
	CHECK_EQ(sheaf_unlink(m->fs, p), answer[m->kind[a]]);
	if (m->kind[a] == 1)
		m->kind[a] = 0;
}

static inline void names_dir(struct names *m, int a)
{
	char p[64];

	name_of(p, m, a);
	if (m->kind[a] == 2) {
		CHECK_EQ(sheaf_rmdir(m->fs, p), 0);
		m->kind[a] = 0;
		return;
	}
	CHECK_EQ(sheaf_mkdir(m->fs, p, 0755), m->kind[a] ? -EEXIST : 0);
	if (!m->kind[a])
		m->kind[a] = 2;
}

static inline void names_rename(struct names *m, int a, int b)
{
	char pa[64], pb[64];

	if (a == b || (m->kind[a] && m->kind[b] && m->kind[a] != m->kind[b]))
		return;
	name_of(pa, m, a);
	name_of(pb, m, b);
	CHECK_EQ(sheaf_rename(m->fs, pa, pb), m->kind[a] ? 0 : -ENOENT);
	if (m->kind[a]) {
		m->kind[b] = m->kind[a];
		m->kind[a] = 0;
	}
}

static inline void names_change(struct names *m)
{
	int a = (int)(test_random(&m->rnd) % NAMES), b = (int)(test_random(&m->rnd) % NAMES);

	switch (test_random(&m->rnd) % 4) {
	case 0:
		names_create(m, a);
		break;
	case 1:
		names_unlink(m, a);
		break;
	case 2:
		names_dir(m, a);
		break;
	case 3:
		names_rename(m, a, b);
		break;
	}
}

static inline void names_verify(struct names *m)
{
	for (int i = 0; i < NAMES; i++) {
		struct stat st;
		char p[64];

		name_of(p, m, i);
		CHECK_EQ(sheaf_stat(m->fs, p, &st), m->kind[i] ? 0 : -ENOENT);
		if (m->kind[i])
			CHECK_EQ(S_ISDIR(st.st_mode), m->kind[i] == 2);
	}
}

#endif
