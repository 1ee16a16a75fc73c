#include "test_req.h"

static bool test_req_step(struct req *q)
{
	struct test_req *t = container_of(q, struct test_req, req);

	if (q->state == 0) {
		req_goto(q, 1);
		t->start(t, q);
		return true;
	}
	t->over = true;
	t->error = q->error;
	t->bytes = q->bytes;
	req_fini(q);
	return false;
}

static const char *const test_req_names[] = { "start", "end" };
static const struct req_ops test_req_ops = REQ_OPS("test", test_req_step, 1, test_req_names);

void test_req_start(struct test_req *t, struct loop *l,
		    void (*start)(struct test_req *t, struct req *q), void *arg)
{
	*t = (struct test_req){ .start = start, .arg = arg };
	req_init(&t->req, l, &test_req_ops, 0);
	req_run(&t->req);
}

void test_req_wait(struct test_req *t)
{
	struct loop *l = t->req.loop;
	uint64_t until = l->env->clock->now(l->env) + 20 * NSEC_PER_SEC;

	while (!t->over) {
		CHECK(l->env->clock->now(l->env) < until);
		loop_turn(l, NSEC_PER_SEC);
	}
}

int test_req_run(struct loop *l, void (*start)(struct test_req *t, struct req *q), void *arg)
{
	struct test_req t;

	test_req_start(&t, l, start, arg);
	test_req_wait(&t);
	return t.error;
}

const char *scratch_dir_make(const char *parent)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/sheaf-test-XXXXXX", parent);
	CHECK(mkdtemp(path));
	return path;
}

void scratch_dir_remove(const char *path)
{
	char cmd[600];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", path);
	CHECK_EQ(system(cmd), 0);
}
