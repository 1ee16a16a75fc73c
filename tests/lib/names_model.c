#include "names_model.h"

#define NAMES_PATH 320

const char *const names_verbs[] = { "create", "mkdir", "symlink",  "unlink", "rmdir",
				    "rename", "link",  "setxattr", "chmod",  "truncate" };

/* Arguments of an operation: directory and name, a second directory and name, a value. */
enum { NAMES_DIR, NAMES_NAME, NAMES_DIR2, NAMES_NAME2, NAMES_VALUE };

/* The owner always has all permissions, so that the test also runs as another user than root. */
static mode_t names_mode(uint32_t value)
{
	return (value & 0077) | 0700;
}

/* ---- looking up ---- */

static bool names_is(const struct names *m, uint32_t n, mode_t type)
{
	return n && (m->node[n].mode & S_IFMT) == type;
}

static bool names_is_dir(const struct names *m, uint32_t n)
{
	return n == 0 || names_is(m, n, S_IFDIR);
}

static bool names_empty(const struct names *m, uint32_t dir)
{
	for (int i = 0; i < NAMES; i++)
		if (m->node[dir].child[i])
			return false;
	return true;
}

static bool names_below(const struct names *m, uint32_t n, uint32_t top)
{
	while (n && n != top)
		n = m->node[n].parent;
	return n == top;
}

static uint32_t names_room(const struct names *m)
{
	for (uint32_t n = 1; n < NAMES_NODES; n++)
		if (!m->node[n].mode)
			return n;
	return 0;
}

static void names_dir_path(char *out, const struct names *m, uint32_t dir)
{
	if (!dir) {
		snprintf(out, NAMES_PATH, "%s", m->dir);
		return;
	}
	names_dir_path(out, m, m->node[dir].parent);
	snprintf(out + strlen(out), NAMES_PATH - strlen(out), "/n%u", m->node[dir].name);
}

static void names_path(char *out, const struct names *m, uint32_t dir, uint32_t name)
{
	names_dir_path(out, m, dir);
	snprintf(out + strlen(out), NAMES_PATH - strlen(out), "/n%u", name);
}

/* ---- predicting ---- */

#define NAMES_DO_NOT 1 /* the model cannot predict the result: skip the operation */

static int names_foretell_rename(const struct names *m, uint32_t a, uint32_t b, uint32_t dir2)
{
	bool dir = names_is(m, a, S_IFDIR);

	if (!a)
		return b ? NAMES_DO_NOT : -ENOENT;
	if (dir && names_below(m, dir2, a))
		return b ? NAMES_DO_NOT : -EINVAL;
	if (!b || a == b)
		return 0;
	if (dir != names_is(m, b, S_IFDIR))
		return dir ? -ENOTDIR : -EISDIR;
	return dir && !names_empty(m, b) ? -ENOTEMPTY : 0;
}

int names_foretell(const struct names *m, const struct logged_op *d)
{
	uint32_t a = m->node[d->arg[NAMES_DIR]].child[d->arg[NAMES_NAME]];
	uint32_t b = m->node[d->arg[NAMES_DIR2]].child[d->arg[NAMES_NAME2]];

	switch (d->verb) {
	case NAMES_CREATE:
	case NAMES_MKDIR:
	case NAMES_SYMLINK:
		if (!names_room(m))
			return NAMES_DO_NOT;
		return a ? -EEXIST : 0;
	case NAMES_UNLINK:
		return !a ? -ENOENT : names_is(m, a, S_IFDIR) ? -EISDIR : 0;
	case NAMES_RMDIR:
		if (!a)
			return -ENOENT;
		return !names_is(m, a, S_IFDIR) ? -ENOTDIR : names_empty(m, a) ? 0 : -ENOTEMPTY;
	case NAMES_RENAME:
		return names_foretell_rename(m, a, b, d->arg[NAMES_DIR2]);
	case NAMES_LINK:
		if (b)
			return a && !names_is(m, a, S_IFDIR) ? -EEXIST : NAMES_DO_NOT;
		return !a ? -ENOENT : names_is(m, a, S_IFDIR) ? -EPERM : 0;
	case NAMES_TRUNCATE:
		return !a ? -ENOENT : names_is(m, a, S_IFREG) ? 0 : NAMES_DO_NOT;
	default: /* the model does not know where a symlink points */
		return !a ? -ENOENT : names_is(m, a, S_IFLNK) ? NAMES_DO_NOT : 0;
	}
}

/* ---- changing the model ---- */

static void names_new(struct names *m, uint32_t *place, const struct logged_op *d, mode_t mode)
{
	uint32_t n = names_room(m);

	m->node[n] = (struct names_node){
		.mode = mode, .links = 1, .parent = d->arg[NAMES_DIR], .name = d->arg[NAMES_NAME]
	};
	*place = n;
	if (S_ISLNK(mode))
		m->node[n].text = d->arg[NAMES_VALUE];
}

static void names_drop(struct names *m, uint32_t *place)
{
	if (*place && --m->node[*place].links == 0)
		m->node[*place].mode = 0;
	*place = 0;
}

static void names_move(struct names *m, uint32_t *from, uint32_t *to, const struct logged_op *d)
{
	if (*from == *to) /* two names of one file: rename does nothing */
		return;
	names_drop(m, to);
	*to = *from;
	*from = 0;
	m->node[*to].parent = d->arg[NAMES_DIR2];
	m->node[*to].name = d->arg[NAMES_NAME2];
}

void names_apply(struct names *m, const struct logged_op *d)
{
	uint32_t *a = &m->node[d->arg[NAMES_DIR]].child[d->arg[NAMES_NAME]];
	uint32_t *b = &m->node[d->arg[NAMES_DIR2]].child[d->arg[NAMES_NAME2]];
	uint32_t value = d->arg[NAMES_VALUE];

	switch (d->verb) {
	case NAMES_CREATE:
		names_new(m, a, d, S_IFREG | names_mode(value));
		break;
	case NAMES_MKDIR:
		names_new(m, a, d, S_IFDIR | names_mode(value));
		break;
	case NAMES_SYMLINK:
		names_new(m, a, d, S_IFLNK | 0777);
		break;
	case NAMES_UNLINK:
	case NAMES_RMDIR:
		names_drop(m, a);
		break;
	case NAMES_RENAME:
		names_move(m, a, b, d);
		break;
	case NAMES_LINK:
		*b = *a;
		m->node[*a].links++;
		break;
	case NAMES_SETXATTR:
		m->node[*a].xattr = value;
		break;
	case NAMES_CHMOD:
		m->node[*a].mode = (m->node[*a].mode & S_IFMT) | names_mode(value);
		break;
	case NAMES_TRUNCATE:
		m->node[*a].size = value;
		break;
	}
}

/* ---- executing ---- */

static uint32_t names_some_dir(struct names *m)
{
	uint32_t n;

	do
		n = (uint32_t)(test_random(&m->rnd) % NAMES_NODES);
	while (!names_is_dir(m, n));
	return n;
}

void names_pick(struct names *m, struct logged_op *d)
{
	do {
		*d = (struct logged_op){ .verb = (uint32_t)(test_random(&m->rnd) % NAMES_VERBS) };
		d->arg[NAMES_DIR] = names_some_dir(m);
		d->arg[NAMES_NAME] = (uint32_t)(test_random(&m->rnd) % NAMES);
		d->arg[NAMES_DIR2] = names_some_dir(m);
		d->arg[NAMES_NAME2] = (uint32_t)(test_random(&m->rnd) % NAMES);
		d->arg[NAMES_VALUE] = 1 + (uint32_t)(test_random(&m->rnd) % 30000);
	} while (names_foretell(m, d) == NAMES_DO_NOT);
}

static int names_create(struct names *m, const char *path, uint32_t value)
{
	struct sheaf_file *f;
	int r = sheaf_open(m->fs, path, O_CREAT | O_EXCL | O_WRONLY, names_mode(value), NULL, &f);

	return r ? r : sheaf_close(f);
}

int names_do(struct names *m, const struct logged_op *d)
{
	uint32_t value = d->arg[NAMES_VALUE];
	char a[NAMES_PATH], b[NAMES_PATH], text[16];

	names_path(a, m, d->arg[NAMES_DIR], d->arg[NAMES_NAME]);
	names_path(b, m, d->arg[NAMES_DIR2], d->arg[NAMES_NAME2]);
	snprintf(text, sizeof(text), "%" PRIu32, value);
	switch (d->verb) {
	case NAMES_CREATE:
		return names_create(m, a, value);
	case NAMES_MKDIR:
		return sheaf_mkdir(m->fs, a, names_mode(value));
	case NAMES_SYMLINK:
		return sheaf_symlink(m->fs, text, a);
	case NAMES_UNLINK:
		return sheaf_unlink(m->fs, a);
	case NAMES_RMDIR:
		return sheaf_rmdir(m->fs, a);
	case NAMES_RENAME:
		return sheaf_rename(m->fs, a, b);
	case NAMES_LINK:
		return sheaf_link(m->fs, a, b);
	case NAMES_SETXATTR:
		return sheaf_setxattr(m->fs, a, "user.value", text, strlen(text), 0);
	case NAMES_CHMOD:
		return sheaf_chmod(m->fs, a, names_mode(value));
	default:
		return sheaf_truncate(m->fs, a, value);
	}
}

void names_change(struct names *m)
{
	struct logged_op d;
	int want;

	names_pick(m, &d);
	want = names_foretell(m, &d);
	CHECK_EQ(names_do(m, &d), want);
	if (!want)
		names_apply(m, &d);
}

/* ---- comparing ---- */

/* Writes the difference to why[n]. Always returns false. */
__attribute__((format(printf, 3, 4))) static bool names_wrong(char *why, size_t n, const char *fmt,
							      ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, n, fmt, ap);
	va_end(ap);
	return false;
}

/* Compares the target of a symbolic link, or an extended attribute, with the model. */
static bool names_same_text(struct names *m, const char *path, const char *what, uint32_t want,
			    char *why, size_t n)
{
	char have[64] = "", text[16] = "";
	ssize_t r = strcmp(what, "target") == 0 ?
			    sheaf_readlink(m->fs, path, have, sizeof(have) - 1) :
			    sheaf_getxattr(m->fs, path, "user.value", have, sizeof(have) - 1);

	if (want)
		snprintf(text, sizeof(text), "%" PRIu32, want);
	if (r < 0 && !(r == -ENODATA && !want))
		return names_wrong(why, n, "%s: its %s: %s", path, what, sheaf_strerror((int)r));
	if (strcmp(have, text) != 0)
		return names_wrong(why, n, "%s: its %s is '%s', expected '%s'", path, what, have,
				   text);
	return true;
}

static uint32_t names_links(const struct names *m, uint32_t n)
{
	uint32_t links = 2;

	if (!names_is(m, n, S_IFDIR))
		return m->node[n].links;
	for (int i = 0; i < NAMES; i++)
		links += names_is(m, m->node[n].child[i], S_IFDIR);
	return links;
}

static bool names_same_node(struct names *m, const char *path, uint32_t n, char *why, size_t len)
{
	struct names_node *node = &m->node[n];
	struct stat st;
	int r = sheaf_lstat(m->fs, path, &st);

	if (r)
		return names_wrong(why, len, "%s: %s, expected mode %o", path, sheaf_strerror(r),
				   node->mode);
	if (st.st_mode != node->mode)
		return names_wrong(why, len, "%s: mode %o, expected %o", path, st.st_mode,
				   node->mode);
	if (st.st_nlink != names_links(m, n))
		return names_wrong(why, len, "%s: %ju links, expected %u", path,
				   (uintmax_t)st.st_nlink, names_links(m, n));
	if (S_ISREG(node->mode) && st.st_size != node->size)
		return names_wrong(why, len, "%s: %jd bytes, expected %u", path,
				   (intmax_t)st.st_size, node->size);
	if (node->ino && node->ino != st.st_ino)
		return names_wrong(why, len, "%s: inode %ju, its other name has %ju", path,
				   (uintmax_t)st.st_ino, (uintmax_t)node->ino);
	node->ino = st.st_ino;
	if (S_ISLNK(node->mode))
		return names_same_text(m, path, "target", node->text, why, len);
	return names_same_text(m, path, "attribute", node->xattr, why, len);
}

/* Does the directory have exactly the names of the model? */
static bool names_same_listing(struct names *m, const char *path, uint32_t dir, char *why, size_t n)
{
	struct sheaf_dirent e;
	struct sheaf_dir *d;
	bool seen[NAMES] = { false };
	int r = sheaf_opendir(m->fs, path, &d);

	if (r)
		return names_wrong(why, n, "%s: %s", path, sheaf_strerror(r));
	while ((r = sheaf_readdir(d, &e)) == 1) {
		unsigned i = NAMES;

		if (sscanf(e.name, "n%u", &i) != 1 || i >= NAMES || !m->node[dir].child[i] ||
		    seen[i])
			break;
		seen[i] = true;
	}
	sheaf_closedir(d);
	if (r < 0)
		return names_wrong(why, n, "%s: %s", path, sheaf_strerror(r));
	if (r == 1)
		return names_wrong(why, n, "%s: lists '%s', not expected", path, e.name);
	for (int i = 0; i < NAMES; i++)
		if (!seen[i] && m->node[dir].child[i])
			return names_wrong(why, n, "%s: does not list 'n%d'", path, i);
	return true;
}

bool names_same(struct names *m, char *why, size_t n)
{
	char path[NAMES_PATH];

	for (uint32_t i = 0; i < NAMES_NODES; i++)
		m->node[i].ino = 0;
	for (uint32_t dir = 0; dir < NAMES_NODES; dir++) {
		if (!names_is_dir(m, dir))
			continue;
		names_dir_path(path, m, dir);
		if (!names_same_listing(m, path, dir, why, n))
			return false;
		for (uint32_t i = 0; i < NAMES; i++) {
			uint32_t node = m->node[dir].child[i];

			names_path(path, m, dir, i);
			if (node && !names_same_node(m, path, node, why, n))
				return false;
		}
	}
	return true;
}

void names_verify(struct names *m)
{
	char why[512] = "";

	if (!names_same(m, why, sizeof(why)))
		fprintf(stderr, "%s\n", why);
	CHECK_STR(why, "");
}
