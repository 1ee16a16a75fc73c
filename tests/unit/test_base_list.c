/* Intrusive lists. */
#include "base/base.h"

#include "test.h"

struct item {
	int n;
	struct list link;
};

static void check_order(struct list *head, const char *want)
{
	struct item *it;
	size_t i = 0;

	list_for_each(it, head, link) {
		CHECK(want[i]);
		CHECK_EQ(it->n, want[i++] - '0');
	}
	CHECK_EQ(want[i], 0);
}

static void lists_keep_their_order(void)
{
	struct list head = LIST_INIT(head);
	struct item a = { .n = 1 }, b = { .n = 2 }, c = { .n = 3 };

	CHECK(list_empty(&head) && !list_pop(&head) && !list_first(&head, struct item, link));
	list_push(&head, &b.link);
	list_push(&head, &c.link);
	list_push_front(&head, &a.link);
	check_order(&head, "123");
	CHECK(list_first(&head, struct item, link) == &a);
	CHECK(list_entry(list_pop(&head), struct item, link) == &a);
	check_order(&head, "23");
}

static void deleting_twice_is_harmless(void)
{
	struct list head = LIST_INIT(head);
	struct item a = { .n = 1 }, b = { .n = 2 };

	list_push(&head, &a.link);
	list_push(&head, &b.link);
	list_del(&a.link);
	list_del(&a.link);
	CHECK(list_empty(&a.link));
	check_order(&head, "2");
}

static void the_current_item_may_be_deleted_while_walking(void)
{
	struct list head = LIST_INIT(head);
	struct item items[5], *it, *tmp;

	for (int i = 0; i < 5; i++) {
		items[i].n = i;
		list_push(&head, &items[i].link);
	}
	list_for_each_safe(it, tmp, &head, link) {
		if (it->n % 2) {
			list_del(&it->link);
			memset(it, 0xff, sizeof(*it));
		}
	}
	check_order(&head, "024");
}

static void splicing_moves_everything_to_the_tail(void)
{
	struct list to = LIST_INIT(to), from = LIST_INIT(from);
	struct item a = { .n = 1 }, b = { .n = 2 }, c = { .n = 3 };

	list_splice(&to, &from);
	CHECK(list_empty(&to));
	list_push(&to, &a.link);
	list_push(&from, &b.link);
	list_push(&from, &c.link);
	list_splice(&to, &from);
	check_order(&to, "123");
	CHECK(list_empty(&from));
}

TEST_MAIN(TEST(lists_keep_their_order), TEST(deleting_twice_is_harmless),
	  TEST(the_current_item_may_be_deleted_while_walking),
	  TEST(splicing_moves_everything_to_the_tail))
