/* The access to explain: numbers on the command line, or JSON, written by hand or by $SHEAF_TRACE.
 *
 *   {"op": "read", "unit": 65536, "width": 4, "file": SIDE, "mem": SIDE}
 *   SIDE: [[offset, length], [offset, length, count, stride], ...] or
 *         {"offset": 0, "type": TYPE, "count": 1}
 *   TYPE: {"bytes": 8}, {"vector": {"count", "block", "stride", "of"}},
 *         {"indexed": {"blocks", "displ", "of"}}, {"struct": [[displ, TYPE, blocks], ...]},
 *         {"subarray": {"sizes", "subsizes", "starts", "of"}}
 *
 * The file is untrusted: sizes and nesting are bounded, and messages name the place of an error.
 * The memory of an access is a range of addresses that is not accessed before explain_place().
 * Threads: one. Errors: -errno, with the message. */
#include <ctype.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <unistd.h>

#include "explain/explain_impl.h"

#define MEMORY ((uintptr_t)1 << 20) /* start of the fictitious memory */
#define FILE_MAX_BYTES (128 * MIB)
#define ENTRIES_MAX ((size_t)4 << 20)
#define DEPTH_MAX 96 /* nesting of the JSON: types may be nested 32 deep */
#define OFFSET_MAX ((uint64_t)INT64_MAX)

__attribute__((format(printf, 3, 4))) static int wrong(struct explain_access *x, int err,
						       const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(x->err, sizeof(x->err), fmt, ap);
	va_end(ap);
	return err;
}

/* ---- numbers ---- */

static int number(struct explain_access *x, struct json_object *o, const char *what, int64_t min,
		  int64_t *out)
{
	uint64_t big = o && json_object_is_type(o, json_type_int) && json_object_get_int64(o) > 0 ?
			       json_object_get_uint64(o) :
			       0;

	if (!o)
		return wrong(x, -EINVAL, "%s is missing", what);
	if (!json_object_is_type(o, json_type_int))
		return wrong(x, -EINVAL, "%s must be a whole number, not %.40s", what,
			     json_object_to_json_string(o));
	*out = json_object_get_int64(o);
	if (big >= OFFSET_MAX || *out < min)
		return wrong(x, -EINVAL, "%s is %s, but must be from %lld to 2^63 - 2", what,
			     big >= OFFSET_MAX ? "too large" : json_object_to_json_string(o),
			     (long long)min);
	return 0;
}

/* Reads an optional member; *out keeps its value if the member is missing. */
static int member(struct explain_access *x, struct json_object *o, const char *in, const char *key,
		  int64_t min, int64_t *out)
{
	struct json_object *v;
	char what[64];

	if (!json_object_object_get_ex(o, key, &v))
		return 0;
	snprintf(what, sizeof(what), "%s%s%s", in, in[0] ? "." : "", key);
	return number(x, v, what, min, out);
}

/* Reads an array of numbers; the caller frees it. */
static int numbers(struct explain_access *x, struct json_object *o, const char *in, const char *key,
		   int64_t min, int64_t **out, size_t *n)
{
	struct json_object *a = json_object_object_get(o, key);
	char what[64];
	int r = 0;

	*out = NULL;
	if (!a || !json_object_is_type(a, json_type_array))
		return wrong(x, -EINVAL, "%s needs \"%s\": [number, ...]", in, key);
	*n = json_object_array_length(a);
	*out = calloc(*n + 1, sizeof(**out));
	if (!*out)
		return wrong(x, -ENOMEM, "out of memory");
	for (size_t i = 0; !r && i < *n; i++) {
		snprintf(what, sizeof(what), "%s.%s[%zu]", in, key, i);
		r = number(x, json_object_array_get_idx(a, i), what, min, &(*out)[i]);
	}
	return r;
}

/* ---- types ---- */

static int made(struct explain_access *x, const char *what, int r)
{
	if (r == -E2BIG)
		return wrong(x, r, "the %s is nested deeper than 32, or needs more than 1 MiB",
			     what);
	if (r)
		return wrong(x, r, "the %s reaches beyond 2^63 - 1 bytes, or out of its array",
			     what);
	return 0;
}

static int read_type(struct explain_access *x, struct json_object *o, struct sheaf_type **out);

/* The base type of a type; bytes if there is none. */
static int read_of(struct explain_access *x, struct json_object *o, struct sheaf_type **out)
{
	struct json_object *of;

	if (json_object_object_get_ex(o, "of", &of))
		return read_type(x, of, out);
	return made(x, "byte", sheaf_type_bytes(1, out));
}

static int read_vector(struct explain_access *x, struct json_object *o, const struct sheaf_type *of,
		       struct sheaf_type **out)
{
	int64_t count = 1, block = 1, stride = 0;
	int r = number(x, json_object_object_get(o, "count"), "vector.count", 0, &count);

	if (!r)
		r = member(x, o, "vector", "block", 0, &block);
	if (!r)
		r = number(x, json_object_object_get(o, "stride"), "vector.stride", -INT64_MAX,
			   &stride);
	return r ? r :
		   made(x, "vector",
			sheaf_type_vector((uint64_t)count, (uint64_t)block, stride, of, out));
}

static int read_indexed(struct explain_access *x, struct json_object *o,
			const struct sheaf_type *of, struct sheaf_type **out)
{
	int64_t *blocks = NULL, *displ = NULL;
	size_t n, m;
	int r = numbers(x, o, "indexed", "blocks", 0, &blocks, &n);

	if (!r)
		r = numbers(x, o, "indexed", "displ", -INT64_MAX, &displ, &m);
	if (!r && n != m)
		r = wrong(x, -EINVAL, "indexed has %zu blocks and %zu displ: as many of both", n,
			  m);
	if (!r)
		r = made(x, "indexed", sheaf_type_indexed(n, (uint64_t *)blocks, displ, of, out));
	free(blocks);
	free(displ);
	return r;
}

static int read_subarray(struct explain_access *x, struct json_object *o,
			 const struct sheaf_type *of, struct sheaf_type **out)
{
	static const char *const keys[] = { "sizes", "subsizes", "starts" };
	int64_t *v[3] = { NULL };
	size_t n[3] = { 0 };
	int r = 0;

	for (int i = 0; !r && i < 3; i++)
		r = numbers(x, o, "subarray", keys[i], 0, &v[i], &n[i]);
	if (!r && (!n[0] || n[0] > 32 || n[0] != n[1] || n[0] != n[2]))
		r = wrong(
			x, -EINVAL,
			"subarray: sizes, subsizes and starts must have as many numbers, 1 to 32");
	if (!r)
		r = made(x, "subarray",
			 sheaf_type_subarray((int)n[0], (uint64_t *)v[0], (uint64_t *)v[1],
					     (uint64_t *)v[2], of, out));
	for (int i = 0; i < 3; i++)
		free(v[i]);
	return r;
}

struct parts {
	uint64_t *blocks;
	int64_t *displ;
	struct sheaf_type **of;
};

static int read_part(struct explain_access *x, struct json_object *e, size_t i, struct parts *p)
{
	size_t n = json_object_is_type(e, json_type_array) ? json_object_array_length(e) : 0;
	int64_t blocks = 1;
	char what[48];
	int r;

	snprintf(what, sizeof(what), "struct[%zu]", i);
	if (n < 2 || n > 3)
		return wrong(x, -EINVAL,
			     "%s must be [displacement, type] or [displacement, type, blocks]",
			     what);
	r = number(x, json_object_array_get_idx(e, 0), what, -INT64_MAX, &p->displ[i]);
	if (!r && n == 3)
		r = number(x, json_object_array_get_idx(e, 2), what, 0, &blocks);
	p->blocks[i] = (uint64_t)blocks;
	return r ? r : read_type(x, json_object_array_get_idx(e, 1), &p->of[i]);
}

static int read_struct(struct explain_access *x, struct json_object *o, struct sheaf_type **out)
{
	size_t n = json_object_is_type(o, json_type_array) ? json_object_array_length(o) : 0;
	struct parts p = { calloc(n + 1, sizeof(*p.blocks)), calloc(n + 1, sizeof(*p.displ)),
			   calloc(n + 1, sizeof(struct sheaf_type *)) };
	int r = 0;

	if (!p.blocks || !p.displ || !p.of)
		r = wrong(x, -ENOMEM, "out of memory");
	else if (!json_object_is_type(o, json_type_array))
		r = wrong(x, -EINVAL, "struct must be [[displacement, type], ...]");
	for (size_t i = 0; !r && i < n; i++)
		r = read_part(x, json_object_array_get_idx(o, i), i, &p);
	if (!r)
		r = made(x, "struct",
			 sheaf_type_struct(n, p.blocks, p.displ,
					   (const struct sheaf_type *const *)p.of, out));
	for (size_t i = 0; p.of && i < n; i++)
		sheaf_type_free(p.of[i]);
	free(p.blocks);
	free(p.displ);
	free(p.of);
	return r;
}

static const struct {
	const char *name;
	int (*read)(struct explain_access *x, struct json_object *o, const struct sheaf_type *of,
		    struct sheaf_type **out);
} kinds[] = { { "vector", read_vector },
	      { "indexed", read_indexed },
	      { "subarray", read_subarray } };

/* Recursive; DEPTH_MAX bounds the nesting of the JSON. */
static int read_type(struct explain_access *x, struct json_object *o, struct sheaf_type **out)
{
	struct sheaf_type *of = NULL;
	struct json_object *v;
	int64_t bytes;
	int r;

	if (!o || !json_object_is_type(o, json_type_object) || json_object_object_length(o) != 1)
		return wrong(x, -EINVAL,
			     "a type must be an object with one member: bytes, vector, indexed, "
			     "subarray or struct; not %.40s",
			     json_object_to_json_string(o));
	if (json_object_object_get_ex(o, "bytes", &v)) {
		r = number(x, v, "bytes", 0, &bytes);
		return r ? r : made(x, "type", sheaf_type_bytes((uint64_t)bytes, out));
	}
	if (json_object_object_get_ex(o, "struct", &v))
		return read_struct(x, v, out);
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		if (!json_object_object_get_ex(o, kinds[i].name, &v))
			continue;
		if (!json_object_is_type(v, json_type_object))
			return wrong(x, -EINVAL, "%s must be an object", kinds[i].name);
		r = read_of(x, v, &of);
		r = r ? r : kinds[i].read(x, v, of, out);
		sheaf_type_free(of);
		return r;
	}
	return wrong(x, -EINVAL, "there is no type %.40s", json_object_to_json_string(o));
}

/* ---- sides ---- */

/* Expands one entry of a list. Called twice: the first pass only counts. */
static int read_entry(struct explain_access *x, struct json_object *e, const char *name, size_t i,
		      struct explain_side *s)
{
	size_t n = json_object_is_type(e, json_type_array) ? json_object_array_length(e) : 0;
	int64_t v[4] = { 0, 0, 1, 0 };
	uint64_t offset;
	char what[48];
	int r = 0;

	snprintf(what, sizeof(what), "%s[%zu]", name, i);
	if (n != 2 && n != 4)
		return wrong(x, -EINVAL,
			     "%s must be [offset, length] or [offset, length, count, stride]",
			     what);
	for (size_t k = 0; !r && k < n; k++)
		r = number(x, json_object_array_get_idx(e, k), what, k == 3 ? -INT64_MAX : 0,
			   &v[k]);
	if (r)
		return r;
	if ((uint64_t)v[2] > ENTRIES_MAX - s->n)
		return wrong(x, -E2BIG, "%s: more than %zu pieces; describe them by a type", what,
			     ENTRIES_MAX);
	for (int64_t k = 0; s->list && k < v[2]; k++) {
		offset = (uint64_t)v[0] + (uint64_t)k * (uint64_t)v[3];
		if (offset > OFFSET_MAX - (uint64_t)v[1])
			return wrong(x, -EFBIG, "%s reaches below 0 or beyond 2^63 - 1", what);
		s->list[s->n + (size_t)k] = (struct sheaf_extent){ offset, (uint64_t)v[1] };
	}
	s->n += (size_t)v[2];
	return 0;
}

static int read_list(struct explain_access *x, struct json_object *o, const char *name,
		     struct explain_side *s)
{
	size_t n = json_object_array_length(o);
	int r = 0;

	for (int pass = 0; pass < 2; pass++) {
		if (pass)
			s->list = calloc(s->n + 1, sizeof(*s->list));
		if (pass && !s->list)
			return wrong(x, -ENOMEM, "out of memory");
		s->n = 0;
		for (size_t i = 0; !r && i < n; i++)
			r = read_entry(x, json_object_array_get_idx(o, i), name, i, s);
	}
	return r;
}

static int read_side(struct explain_access *x, struct json_object *o, const char *name,
		     struct explain_side *s)
{
	int64_t offset = 0, count = 1;
	int r;

	if (json_object_is_type(o, json_type_array))
		return read_list(x, o, name, s);
	if (!json_object_is_type(o, json_type_object))
		return wrong(x, -EINVAL, "%s must be [[offset, length], ...] or {\"type\": ...}",
			     name);
	r = member(x, o, name, "offset", 0, &offset);
	if (!r)
		r = member(x, o, name, "count", 0, &count);
	if (!r)
		r = read_type(x, json_object_object_get(o, "type"), &s->type);
	s->offset = (uint64_t)offset;
	s->count = (uint64_t)count;
	return r;
}

/* Converts a list to a type, for an access whose other side is a type. */
static int side_to_type(struct explain_access *x, struct explain_side *s)
{
	uint64_t *blocks = calloc(s->n + 1, sizeof(*blocks));
	int64_t *displ = calloc(s->n + 1, sizeof(*displ));
	struct sheaf_type *byte = NULL;
	int r = blocks && displ ? sheaf_type_bytes(1, &byte) : -ENOMEM;

	for (size_t i = 0; !r && i < s->n; i++) {
		blocks[i] = s->list[i].length;
		displ[i] = (int64_t)s->list[i].offset;
	}
	if (!r)
		r = sheaf_type_indexed(s->n, blocks, displ, byte, &s->type);
	s->count = 1;
	sheaf_type_free(byte);
	free(blocks);
	free(displ);
	return made(x, "list beside a type", r);
}

static int side_bytes(struct explain_access *x, const struct explain_side *s, const char *name,
		      uint64_t *out)
{
	uint64_t sum = 0;
	bool fits = true;

	if (s->type)
		fits = !__builtin_mul_overflow(sheaf_type_size(s->type), s->count, &sum);
	for (size_t i = 0; !s->type && i < s->n && sum <= OFFSET_MAX; i++)
		sum += s->list[i].length;
	*out = sum;
	return fits && sum <= OFFSET_MAX ?
		       0 :
		       wrong(x, -EFBIG, "%s has more than 2^63 - 1 bytes", name);
}

/* Cuts a list to its first `bytes` bytes. */
static void side_cut(struct explain_side *s, uint64_t bytes)
{
	size_t i = 0;

	for (; i < s->n && bytes; bytes -= s->list[i++].length)
		s->list[i].length = MIN(s->list[i].length, bytes);
	s->n = i;
}

/* ---- the whole access ---- */

static int set_lists(struct explain_access *x)
{
	struct explain_side *m = &x->mem;

	if (!m->list) {
		m->list = calloc(1, sizeof(*m->list));
		m->n = 1;
		if (m->list)
			m->list[0].length = x->bytes;
	}
	x->iov = m->list ? calloc(m->n + 1, sizeof(*x->iov)) : NULL;
	if (!x->iov)
		return wrong(x, -ENOMEM, "out of memory");
	for (size_t i = 0; i < m->n; i++) {
		x->iov[i] =
			(struct iovec){ (void *)(MEMORY + m->list[i].offset), m->list[i].length };
		x->span = MAX(x->span, m->list[i].offset + m->list[i].length);
	}
	x->a.mem = x->iov;
	x->a.n_mem = m->n;
	x->a.ext = x->file.list;
	x->a.n_ext = x->file.n;
	return 0;
}

static int set_types(struct explain_access *x)
{
	struct explain_side *m = &x->mem;
	int64_t lower, upper;
	int r = 0;

	if (!m->type && m->list) {
		r = side_to_type(x, m);
	} else if (!m->type) {
		m->count = 1;
		r = made(x, "memory", sheaf_type_bytes(x->bytes, &m->type));
	}
	if (!r && !x->file.type)
		r = side_to_type(x, &x->file);
	if (r)
		return r;
	sheaf_type_bounds(m->type, &lower, &upper);
	if (m->count && __builtin_mul_overflow((uint64_t)(upper - lower), m->count, &x->span))
		return wrong(x, -EFBIG, "mem reaches beyond 2^63 - 1");
	x->a.base = (void *)(MEMORY - (uintptr_t)lower);
	x->a.mem_type = m->type;
	x->a.mem_count = m->count;
	x->a.file_type = x->file.type;
	x->a.file_off = x->file.offset;
	return 0;
}

/* Without a memory side the memory is contiguous. limit: bytes of a recorded access, or 0. */
static int finish(struct explain_access *x, uint64_t limit)
{
	uint64_t mem;
	int r = side_bytes(x, &x->file, "file", &x->bytes);

	if (!r)
		r = side_bytes(x, &x->mem, "mem", &mem);
	if (r)
		return r;
	if (!x->mem.type && !x->mem.list)
		mem = limit && x->file.type ? MIN(limit, x->bytes) : x->bytes;
	if (x->cut && x->file.list && x->mem.list) {
		mem = MIN(mem, x->bytes);
		side_cut(&x->file, mem);
		side_cut(&x->mem, mem);
		x->bytes = mem;
	}
	if (mem != x->bytes && !(limit && x->file.type && mem < x->bytes))
		return wrong(x, -EINVAL,
			     "file has %llu bytes and mem %llu: as many of both, or leave mem out",
			     (unsigned long long)x->bytes, (unsigned long long)mem);
	x->bytes = mem;
	if (!x->bytes)
		return wrong(x, -EINVAL, "there is nothing to move: 0 bytes");
	x->placed = MEMORY;
	return x->file.type || x->mem.type ? set_types(x) : set_lists(x);
}

static int read_object(struct explain_access *x, struct json_object *o)
{
	int64_t unit = 0, width = 0, cut = 0, ns = 0, bytes = 0;
	struct json_object *v;
	const char *op = "read";
	int r;

	if (!json_object_is_type(o, json_type_object))
		return wrong(x, -EINVAL,
			     "an access is an object: {\"op\": \"read\", \"file\": ...}");
	if (json_object_object_get_ex(o, "op", &v))
		op = json_object_get_string(v);
	if (!op || (strcmp(op, "read") && strcmp(op, "write")))
		return wrong(x, -EINVAL, "op must be \"read\" or \"write\"");
	x->a.write = op[0] == 'w';
	r = member(x, o, "", "unit", 0, &unit);
	r = r ? r : member(x, o, "", "width", 0, &width);
	r = r ? r : member(x, o, "", "cut", 0, &cut);
	r = r ? r : member(x, o, "", "ns", 0, &ns);
	r = r ? r : member(x, o, "", "bytes", 0, &bytes);
	if (!r && (unit > UINT32_MAX || unit % 4096))
		r = wrong(x, -EINVAL, "unit must be a multiple of 4096 below 4 GiB");
	if (!r && width > SHEAF_MAX_TARGETS)
		r = wrong(x, -EINVAL, "width must be at most %d", SHEAF_MAX_TARGETS);
	if (r)
		return r;
	x->unit = (uint32_t)unit;
	x->width = (uint32_t)width;
	x->cut = (uint64_t)cut;
	x->took_ns = (uint64_t)ns;
	if (!json_object_object_get_ex(o, "file", &v))
		return wrong(x, -EINVAL,
			     "\"file\" is missing: [[offset, length], ...] or {\"type\": ...}");
	r = read_side(x, v, "file", &x->file);
	if (!r && json_object_object_get_ex(o, "mem", &v))
		r = read_side(x, v, "mem", &x->mem);
	return r ? r : finish(x, (uint64_t)bytes);
}

static int strided(struct explain_access *x, uint64_t count, uint64_t block, int64_t stride,
		   struct explain_side *s)
{
	struct sheaf_type *of = NULL;
	int r = sheaf_type_bytes(block, &of);

	if (!r)
		r = sheaf_type_vector(count, 1, stride, of, &s->type);
	sheaf_type_free(of);
	s->count = 1;
	return made(x, "vector", r);
}

int explain_vector(struct explain_access *x, const char *text, uint64_t offset, uint64_t mem_stride)
{
	char *copy = strdup(text), *rest = copy, *part;
	uint64_t v[3] = { 0 };
	bool back = false;
	int n = 0, r = copy ? 0 : -ENOMEM;

	while (!r && (part = strsep(&rest, ","))) {
		back = n == 2 && part[0] == '-';
		if (n == 3 || parse_size(part + back, &v[n]) || v[n] >= OFFSET_MAX)
			r = -EINVAL;
		n++;
	}
	free(copy);
	if (r || n != 3 || !v[0] || !v[1])
		return wrong(x, -EINVAL,
			     "--vector %s: must be COUNT,BLOCK,STRIDE, as in 1024,64,4096", text);
	x->file.offset = offset;
	r = strided(x, v[0], v[1], back ? -(int64_t)v[2] : (int64_t)v[2], &x->file);
	if (!r && mem_stride)
		r = strided(x, v[0], v[1], (int64_t)mem_stride, &x->mem);
	return r ? r : finish(x, 0);
}

/* ---- the file ---- */

static int slurp(struct explain_access *x, const char *path, char **out, size_t *len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY), e = 0;
	struct stat st;
	ssize_t r = 0;

	*out = NULL;
	if (fd < 0 || fstat(fd, &st))
		e = errno;
	else if (S_ISDIR(st.st_mode))
		e = EISDIR;
	else if (st.st_size > (off_t)FILE_MAX_BYTES)
		e = EFBIG;
	else if (!(*out = malloc((size_t)st.st_size + 1)))
		e = ENOMEM;
	else
		r = read_to_end(fd, *out, (size_t)st.st_size);
	e = r < 0 ? (int)-r : e;
	*len = (size_t)MAX(r, 0);
	if (*out)
		(*out)[*len] = 0;
	if (fd >= 0)
		close(fd);
	if (e) {
		wrong(x, -e, "%s", strerror(e));
		x->err[0] = (char)tolower((unsigned char)x->err[0]);
	}
	return -e;
}

/* Parses one JSON value in [p, p + n), which begins in this line of the file. */
static struct json_object *parse(struct explain_access *x, const char *p, size_t n, size_t line)
{
	struct json_tokener *t = json_tokener_new_ex(DEPTH_MAX);
	struct json_object *o = t ? json_tokener_parse_ex(t, p, (int)n) : NULL;
	size_t at = t ? json_tokener_get_parse_end(t) : 0;
	enum json_tokener_error e = t ? json_tokener_get_error(t) : json_tokener_error_size;

	for (size_t i = 0; i < at && i < n; i++)
		line += p[i] == '\n';
	while (o && at < n && strchr(" \t\r\n", p[at]))
		at++;
	if (!o || at < n) {
		wrong(x, -EINVAL, "line %zu: this is no JSON: %s", line,
		      o				 ? "something follows the object" :
		      e == json_tokener_continue ? "it ends too early" :
						   json_tokener_error_desc(e));
		json_object_put(o);
		o = NULL;
	}
	if (t)
		json_tokener_free(t);
	return o;
}

/* Finds line `nth`, or the last non-empty line; returns its number, or 0. *of: number of lines. */
static size_t find_line(const char *text, size_t nth, const char **at, size_t *n, size_t *of)
{
	size_t line = 0, len, found = 0;

	for (*of = 0; *text; text += len + (text[len] == '\n')) {
		len = strcspn(text, "\n");
		line++;
		if (strspn(text, " \t\r") == len)
			continue;
		if (++*of == nth || !nth) {
			*at = text;
			*n = len;
			found = line;
		}
	}
	return found;
}

int explain_read(struct explain_access *x, const char *path, uint64_t nth)
{
	struct json_object *o = NULL, *first;
	size_t len, n, line;
	const char *at;
	char *text;
	int r = slurp(x, path, &text, &len);

	if (r) {
		free(text);
		return r;
	}
	x->of = 1;
	line = find_line(text, 1, &at, &n, &x->of);
	first = line ? parse(x, at, n, line) : NULL;
	if (!line) {
		r = wrong(x, -EINVAL,
			  "it is empty: an access is {\"file\": [[offset, length], ...]}");
	} else if (!first) { /* not one object per line: one object in all */
		x->of = 1;
		line = nth > 1 ? 0 : 1;
		o = line ? parse(x, text, len, 1) : NULL;
	} else {
		line = find_line(text, (size_t)nth, &at, &n, &x->of);
		o = line ? parse(x, at, n, line) : NULL;
	}
	if (!r && !line)
		r = wrong(x, -EINVAL, "it has %zu transfers, so there is no number %llu", x->of,
			  (unsigned long long)nth);
	else if (!r && !o)
		r = -EINVAL;
	x->nth = nth ? (size_t)nth : x->of;
	if (!r)
		r = read_object(x, o);
	json_object_put(o);
	json_object_put(first);
	free(text);
	return r;
}

void explain_place(struct explain_access *x, void *mem)
{
	uintptr_t by = (uintptr_t)mem - x->placed;

	for (size_t i = 0; i < x->a.n_mem; i++)
		x->iov[i].iov_base = (void *)((uintptr_t)x->iov[i].iov_base + by);
	x->a.base = (void *)((uintptr_t)x->a.base + by);
	x->placed = (uintptr_t)mem;
}

void explain_free(struct explain_access *x)
{
	sheaf_type_free(x->file.type);
	sheaf_type_free(x->mem.type);
	free(x->file.list);
	free(x->mem.list);
	free(x->iov);
}
