/* The map of a running server: adding a target, who may do so, the map after a restart; and
 * backups. */
#include "pipe_link.h"

static struct world w;
static struct pipe_link *p;

static void begin(void)
{
	world_start(&w);
	p = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, p);
}

static void end(void)
{
	pipe_free(p);
	world_end(&w);
}

static int add(uint32_t id, uint32_t roles, const char *name, const char *address)
{
	struct wire_add_target_args a = { .target = { id, roles, wire_text(name),
						      wire_text(address), 0 } };
	struct wire_void_res none;

	return pipe_do(&w, p, OP_ADD_TARGET, XDR_ANY(xdr_wire_add_target_args), &a,
		       XDR_ANY(xdr_wire_void_res), &none, NULL);
}

/* The status of a request by this user with this map version. */
static uint32_t status_of(uint32_t uid, uint32_t version, uint32_t op, xdr_any filter, void *args)
{
	struct session *s = session_on(&p->l, 0);
	struct wire_req_head h = { .op = op,
				   .slot = 1,
				   .sequence = s->slots[1].sequence + 1,
				   .session = s->id,
				   .uid = uid,
				   .map_version = version };
	uint8_t body[1024];
	struct xdr x;

	xdr_encoder(&x, body, sizeof(body));
	CHECK(xdr_wire_req_head(&x, &h) && filter(&x, args));
	pipe_message(&w, p, UINT64_C(1) << 32 | h.sequence, body, xdr_used(&x));
	CHECK(world_quiet(&w));
	return (uint32_t)p->head.status;
}

static struct wire_map_res map(struct arena *a)
{
	struct wire_void_args none = { 0 };
	struct wire_map_res m;

	CHECK_EQ(pipe_do(&w, p, OP_MAP, XDR_ANY(xdr_wire_void_args), &none,
			 XDR_ANY(xdr_wire_map_res), &m, a),
		 0);
	return m;
}

static void a_target_is_added_once(void)
{
	struct wire_map_res m;
	struct arena a;
	uint32_t version;

	begin();
	arena_init(&a, 0);
	version = map(&a).version;
	CHECK_EQ(version, 1);
	CHECK_EQ(add(1, ROLE_DATA, "more", "loop:1"), 0);
	m = map(&a);
	CHECK_EQ(m.version, 2);
	CHECK_EQ(m.n_targets, 2);
	CHECK_EQ(m.n_meta, 1);
	CHECK_EQ(m.targets[1].id, 1);
	CHECK_EQ(m.targets[1].roles, ROLE_DATA);
	CHECK_EQ(memcmp(m.targets[1].name.p, "more", 4), 0);
	CHECK_EQ(w.srv->n_peers, 2);
	/* the same target again changes nothing */
	CHECK_EQ(add(1, ROLE_DATA, "more", "loop:1"), 0);
	CHECK_EQ(map(&a).version, 2);
	arena_destroy(&a);
	end();
}

static void what_cannot_be_added_is_refused(void)
{
	struct wire_add_target_args a = { .target = { 1, ROLE_DATA, wire_text("more"),
						      wire_text("loop:1"), 0 } };
	struct arena mem;

	begin();
	arena_init(&mem, 0);
	CHECK_EQ(add(2, ROLE_DATA, "more", "loop:1"), -EINVAL); /* leaves a gap in the numbers */
	CHECK_EQ(add(0, ROLE_DATA, "more", "loop:1"), -EEXIST);
	CHECK_EQ(add(1, ROLE_DATA, "server0", "loop:1"), -EEXIST);
	CHECK_EQ(add(1, ROLE_DATA, "more", "loop:0"), -EEXIST);
	CHECK_EQ(add(1, ROLE_DATA | ROLE_META, "more", "loop:1"), -EINVAL);
	CHECK_EQ(add(1, 0, "more", "loop:1"), -EINVAL);
	CHECK_EQ(add(1, ROLE_DATA, "", "loop:1"), -EINVAL);
	CHECK_EQ(add(1, ROLE_DATA, "mo\nre", "loop:1"), -EINVAL);
	CHECK_EQ(add(UINT32_MAX, ROLE_DATA, "more", "loop:1"), -ENOSPC);
	CHECK_EQ(status_of(1000, 0, OP_ADD_TARGET, XDR_ANY(xdr_wire_add_target_args), &a), EPERM);
	CHECK_EQ(map(&mem).n_targets, 1);
	arena_destroy(&mem);
	end();
}

static void two_at_once_get_two_ids_or_an_answer(void)
{
	struct wire_add_target_args x = { .target = { 1, ROLE_DATA, wire_text("x"),
						      wire_text("loop:x"), 0 } };
	struct wire_add_target_args y = { .target = { 1, ROLE_DATA, wire_text("y"),
						      wire_text("loop:y"), 0 } };
	struct arena a;

	begin();
	arena_init(&a, 0);
	pipe_call(&w, p, OP_ADD_TARGET, 2, 1, XDR_ANY(xdr_wire_add_target_args), &x);
	pipe_call(&w, p, OP_ADD_TARGET, 3, 1, XDR_ANY(xdr_wire_add_target_args), &y);
	CHECK(world_quiet(&w));
	CHECK_EQ(p->head.slot, 3);
	CHECK_EQ(p->head.status, EAGAIN);
	CHECK_EQ(map(&a).n_targets, 2);
	CHECK_EQ(map(&a).version, 2);
	arena_destroy(&a);
	end();
}

static void an_older_map_is_rejected_before_the_operation(void)
{
	struct wire_mkdir_args mk = { .where = pipe_place("d"), .mode = 0755 };
	struct wire_lookup_args look = { pipe_place("d") };
	struct wire_void_args none = { 0 };

	begin();
	CHECK_EQ(add(1, ROLE_DATA, "more", "loop:1"), 0);
	CHECK_EQ(status_of(0, 1, OP_MKDIR, XDR_ANY(xdr_wire_mkdir_args), &mk), EREMCHG);
	CHECK_EQ(p->head.map_version, 2);
	CHECK_EQ(status_of(0, 1, OP_MAP, XDR_ANY(xdr_wire_void_args), &none), 0);
	CHECK_EQ(status_of(0, 2, OP_LOOKUP, XDR_ANY(xdr_wire_lookup_args), &look), ENOENT);
	CHECK_EQ(status_of(0, 2, OP_MKDIR, XDR_ANY(xdr_wire_mkdir_args), &mk), 0);
	end();
}

static void new_files_use_it_at_once(void)
{
	struct wire_open_res r;
	struct arena a;

	begin();
	arena_init(&a, 0);
	CHECK_EQ(pipe_open(&w, p, "old", 1, OPEN_READ | OPEN_CREATE, &r, &a), 0);
	CHECK_EQ(r.layout.n_targets, 1);
	CHECK_EQ(add(1, ROLE_DATA, "more", "loop:1"), 0);
	CHECK_EQ(pipe_open(&w, p, "new", 2, OPEN_READ | OPEN_CREATE, &r, &a), 0);
	CHECK_EQ(r.layout.n_targets, 2);
	CHECK_EQ(pipe_open(&w, p, "old", 3, OPEN_READ, &r, &a), 0);
	CHECK_EQ(r.layout.n_targets, 1);
	arena_destroy(&a);
	end();
}

static void restart(void)
{
	pipe_free(p);
	world_settle(&w);
	CHECK_EQ(server_stop(w.srv), 0);
	world_start_server(&w);
	world_settle(&w);
	p = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, p);
}

static void a_restart_with_the_older_cluster_file_keeps_it(void)
{
	struct wire_map_res m;
	struct arena a;

	begin();
	arena_init(&a, 0);
	CHECK_EQ(add(1, ROLE_DATA, "more", "loop:1"), 0);
	restart(); /* the cluster file of the world has one server */
	m = map(&a);
	CHECK_EQ(m.n_targets, 2);
	CHECK_EQ(m.version, 2);
	CHECK_EQ(w.srv->n_peers, 2);
	/* the cluster file decides about the targets that it lists */
	strcpy(w.conf->targets[0].address, "loop:elsewhere");
	restart();
	m = map(&a);
	CHECK_EQ(m.version, 3);
	CHECK_EQ(m.n_targets, 2);
	CHECK_EQ(memcmp(m.targets[0].address.p, "loop:elsewhere", m.targets[0].address.len), 0);
	arena_destroy(&a);
	end();
}

static int add_storage(uint64_t incarnation, bool emptied)
{
	struct wire_add_target_args a = { .target = { 1, ROLE_DATA, wire_text("more"),
						      wire_text("loop:1"), incarnation },
					  .emptied = emptied };
	struct wire_void_res none;

	return pipe_do(&w, p, OP_ADD_TARGET, XDR_ANY(xdr_wire_add_target_args), &a,
		       XDR_ANY(xdr_wire_void_res), &none, NULL);
}

static void a_replaced_storage_must_be_declared_empty(void)
{
	struct arena a;

	begin();
	arena_init(&a, 0);
	CHECK_EQ(map(&a).targets[0].incarnation, disk_stamp(w.srv->disk).incarnation);
	CHECK_EQ(add_storage(5, true), -EINVAL); /* an unknown target cannot have been emptied */
	CHECK_EQ(add_storage(0, false), 0);
	CHECK_EQ(map(&a).targets[1].incarnation, 0);
	CHECK_EQ(add_storage(5, false), 0); /* the first known incarnation */
	CHECK_EQ(add_storage(5, false), 0);
	CHECK_EQ(add_storage(6, false), -ESTALE);
	CHECK_EQ(map(&a).targets[1].incarnation, 5);
	restart();
	CHECK_EQ(map(&a).targets[1].incarnation, 5);
	CHECK_EQ(add_storage(6, false), -ESTALE);
	CHECK_EQ(add_storage(6, true), 0);
	CHECK_EQ(map(&a).version, 2); /* clients need not learn of it */
	restart();
	CHECK_EQ(map(&a).targets[1].incarnation, 6);
	CHECK_EQ(map(&a).n_targets, 2);
	arena_destroy(&a);
	end();
}

static void the_incarnation_that_a_link_tells_is_kept(void)
{
	struct wire_map_res m;
	struct arena a;
	struct peer *peer;

	begin();
	arena_init(&a, 0);
	CHECK_EQ(add(1, ROLE_DATA, "more", "loop:1"), 0);
	peer = &w.srv->peers[1];
	peer->incarnation = 7;
	peer->on_incarnation(peer);
	CHECK(world_quiet(&w));
	peer->incarnation = 8; /* only logged as an error */
	peer->on_incarnation(peer);
	CHECK(world_quiet(&w));
	m = map(&a);
	CHECK_EQ(m.targets[1].incarnation, 7);
	CHECK_EQ(m.version, 2);
	restart();
	CHECK_EQ(map(&a).targets[1].incarnation, 7);
	arena_destroy(&a);
	end();
}

static bool stored_step(struct req *q)
{
	req_fini(q);
	return false;
}
static const char *const stored_names[] = { "commit" };
static const struct req_ops stored_ops = REQ_OPS("stored", stored_step, 0, stored_names);

/* This map has no incarnations after the addresses. */
static void a_map_of_an_earlier_version_is_read(void)
{
	struct wire_old_map_target t[] = {
		{ 0, ROLE_DATA | ROLE_META, wire_text("server0"), wire_text("loop:0") },
		{ 1, ROLE_DATA, wire_text("more"), wire_text("loop:1") }
	};
	struct wire_old_map old = { .n_targets = 2, .targets = t };
	struct change c = { .rec = { .kind = REC_MAP } };
	struct wire_map_res m;
	struct arena a, mem;
	uint8_t text[1024];
	struct req q;
	struct xdr x;

	begin();
	arena_init(&a, 0);
	arena_init(&mem, 0);
	xdr_encoder(&x, text, sizeof(text));
	CHECK(xdr_wire_old_map(&x, &old));
	c.arena = &mem;
	c.rec.data = (struct wire_bytes){ (uint32_t)xdr_used(&x), text };
	req_init(&q, w.srv->loop, &stored_ops, 0);
	meta_submit(w.srv->meta, &c, &q);
	CHECK(world_quiet(&w));
	CHECK_EQ(c.res.status, 0);
	restart();
	m = map(&a);
	CHECK_EQ(m.n_targets, 2);
	CHECK_EQ(memcmp(m.targets[1].name.p, "more", 4), 0);
	CHECK_EQ(m.targets[0].incarnation, disk_stamp(w.srv->disk).incarnation);
	CHECK_EQ(m.targets[1].incarnation, 0);
	arena_destroy(&a);
	arena_destroy(&mem);
	end();
}

static void a_layout_is_readable_as_an_attribute(void)
{
	struct wire_getxattr_args g = { .name = wire_text("sheaf.layout"), .max = 1000 };
	struct wire_setxattr_args set = { .name = wire_text("sheaf.layout"),
					  .value = wire_text("x") };
	struct wire_xattr_res x;
	struct wire_void_res none;
	struct wire_open_res r;
	struct arena a;

	begin();
	arena_init(&a, 0);
	CHECK_EQ(add(1, ROLE_DATA, "more", "loop:1"), 0);
	CHECK_EQ(pipe_open(&w, p, "f", 1, OPEN_READ | OPEN_CREATE, &r, &a), 0);
	g.h = set.h = (struct wire_handle){ r.at.ino, r.at.gen };
	CHECK_EQ(pipe_do(&w, p, OP_GETXATTR, XDR_ANY(xdr_wire_getxattr_args), &g,
			 XDR_ANY(xdr_wire_xattr_res), &x, &a),
		 0);
	CHECK_EQ(x.size, x.data.len);
	CHECK(memmem(x.data.p, x.data.len, "unit=65536", 10));
	CHECK(memmem(x.data.p, x.data.len, "more", 4) &&
	      memmem(x.data.p, x.data.len, "server0", 7));
	g.max = 0;
	CHECK_EQ(pipe_do(&w, p, OP_GETXATTR, XDR_ANY(xdr_wire_getxattr_args), &g,
			 XDR_ANY(xdr_wire_xattr_res), &x, &a),
		 0);
	CHECK(x.size > 0);
	CHECK_EQ(x.data.len, 0);
	CHECK_EQ(pipe_do(&w, p, OP_SETXATTR, XDR_ANY(xdr_wire_setxattr_args), &set,
			 XDR_ANY(xdr_wire_void_res), &none, NULL),
		 -EOPNOTSUPP);
	g.h = (struct wire_handle){ META_ROOT_INO, META_ROOT_GEN };
	CHECK_EQ(pipe_do(&w, p, OP_GETXATTR, XDR_ANY(xdr_wire_getxattr_args), &g,
			 XDR_ANY(xdr_wire_xattr_res), &x, &a),
		 -ENODATA);
	arena_destroy(&a);
	end();
}

/* ---- backups ---- */

static int backup(struct pipe_link *of, uint64_t id, uint64_t offset, struct wire_backup_res *r)
{
	struct wire_backup_args a = { id, offset };

	return pipe_do(&w, of, OP_BACKUP, XDR_ANY(xdr_wire_backup_args), &a,
		       XDR_ANY(xdr_wire_backup_res), r, NULL);
}

static void a_backup_is_read_in_parts(void)
{
	struct wire_backup_res first, r;
	uint64_t at = 0;

	begin();
	CHECK_EQ(backup(p, 0, 0, &first), 0);
	CHECK(first.id != 0);
	do {
		CHECK_EQ(backup(p, first.id, at, &r), 0);
		CHECK_EQ(r.id, first.id);
		CHECK(r.data.len > 0 && r.data.len <= BACKUP_CHUNK);
		at += r.data.len;
	} while (at < r.size);
	CHECK_EQ(at, r.size);
	CHECK_EQ(backup(p, first.id, at, &r), 0); /* the end of the backup */
	CHECK_EQ(r.data.len, 0);
	CHECK_EQ(backup(p, first.id, at + 1, &r), -EINVAL);
	CHECK_EQ(backup(p, first.id + 2, 0, &r), -ESTALE);
	CHECK_EQ(memcmp(r.fs_id, w.conf->fs_id.b, 16), 0);
	CHECK_EQ(backup(p, 0, 0, &r), 0); /* replaces the first backup */
	CHECK(r.id != first.id);
	CHECK_EQ(backup(p, first.id, 0, &r), -ESTALE);
	end();
}

static void backups_are_for_administrators_and_go_with_their_session(void)
{
	struct wire_backup_args a = { 0, 0 };
	struct wire_void_args none = { 0 };
	struct wire_void_res gone;
	struct wire_backup_res r;
	struct pipe_link *other;

	begin();
	CHECK_EQ(status_of(1000, 0, OP_BACKUP, XDR_ANY(xdr_wire_backup_args), &a), EPERM);
	other = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, other);
	CHECK_EQ(backup(other, 0, 0, &r), 0);
	CHECK(w.srv->backup.copy != NULL);
	CHECK_EQ(pipe_do(&w, other, OP_BYE, XDR_ANY(xdr_wire_void_args), &none,
			 XDR_ANY(xdr_wire_void_res), &gone, NULL),
		 0);
	world_settle(&w);
	CHECK(w.srv->backup.copy == NULL);
	CHECK_EQ(backup(p, r.id, 0, &r), -ESTALE);
	pipe_free(other);
	end();
}

/* A server that does not know all targets would take a valid layout for a damaged one. */
static void a_layout_is_repaired_only_if_all_targets_are_known(void)
{
	struct wire_repair_args a = { .kind = REPAIR_LAYOUT, .h = { 4711, 1 } };

	begin();
	a.value = w.srv->map.n_targets + 1;
	CHECK_EQ(status_of(0, 0, OP_REPAIR, XDR_ANY(xdr_wire_repair_args), &a), EAGAIN);
	a.value = w.srv->map.n_targets;
	CHECK_EQ(status_of(0, 0, OP_REPAIR, XDR_ANY(xdr_wire_repair_args), &a), ESTALE);
	end();
}

TEST_MAIN(TEST(a_layout_is_repaired_only_if_all_targets_are_known), TEST(a_target_is_added_once),
	  TEST(what_cannot_be_added_is_refused), TEST(two_at_once_get_two_ids_or_an_answer),
	  TEST(an_older_map_is_rejected_before_the_operation), TEST(new_files_use_it_at_once),
	  TEST(a_restart_with_the_older_cluster_file_keeps_it),
	  TEST(a_replaced_storage_must_be_declared_empty),
	  TEST(the_incarnation_that_a_link_tells_is_kept),
	  TEST(a_map_of_an_earlier_version_is_read), TEST(a_layout_is_readable_as_an_attribute),
	  TEST(a_backup_is_read_in_parts),
	  TEST(backups_are_for_administrators_and_go_with_their_session))
