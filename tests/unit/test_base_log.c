/* The log: its lines, its file, and concurrent threads. */
#include "base/base.h"

#include <pthread.h>
#include <unistd.h>

#include "test.h"

static char text[1 << 20];

static void slurp(const char *path)
{
	FILE *f = fopen(path, "r");
	size_t n;

	CHECK(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = 0;
	fclose(f);
}

static void a_line_has_time_level_component_trace_and_text(void)
{
	int y, mo, d, h, mi, s, ms, n = 0;

	log_open("log1", LOG_INFO);
	log_at(LOG_WARN, "net", 0x1f, "link to %s broke", "server0");
	slurp("log1");
	CHECK_EQ(sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ %n", &y, &mo, &d, &h, &mi, &s, &ms, &n),
		 7);
	CHECK_STR(text + n, "warn net [1f] link to server0 broke\n");
}

static void messages_below_the_level_are_dropped(void)
{
	log_open("log2", LOG_WARN);
	log_info("x", "not this");
	log_error("x", "but this");
	log_set_level(LOG_DEBUG);
	log_debug("x", "and this");
	slurp("log2");
	CHECK(!strstr(text, "not this") && strstr(text, "error x but this\n") &&
	      strstr(text, "debug x and this\n"));
}

static void control_characters_and_long_texts_stay_one_line(void)
{
	static char longer[5000];

	memset(longer, 'a', sizeof(longer) - 1);
	log_open("log3", LOG_INFO);
	log_info("x", "name\nforged error line\x1b[31m");
	log_info("x", "%s", longer);
	slurp("log3");
	CHECK(strstr(text, "name forged error line [31m\n"));
	CHECK(strchr(strchr(text, '\n') + 1, '\n') == text + strlen(text) - 1);
}

static void reopening_follows_a_rotated_file(void)
{
	log_open("log4", LOG_INFO);
	log_info("x", "first");
	CHECK_EQ(rename("log4", "log4.old"), 0);
	log_info("x", "second");
	log_reopen();
	log_info("x", "third");
	slurp("log4.old");
	CHECK(strstr(text, "first") && strstr(text, "second") && !strstr(text, "third"));
	slurp("log4");
	CHECK(!strstr(text, "second") && strstr(text, "third"));
}

static void a_file_that_cannot_be_opened_keeps_the_old_log(void)
{
	log_open("log5", LOG_INFO);
	log_open("no/such/folder/log", LOG_INFO);
	log_info("x", "still here");
	slurp("log5");
	CHECK(strstr(text, "cannot open the log") && strstr(text, "still here"));
}

static void *chatter(void *arg)
{
	for (int i = 0; i < 200; i++) {
		errno = EBUSY;
		log_info("x", "thread %d says %d", (int)(intptr_t)arg, i);
		CHECK_EQ(errno, EBUSY); /* logging preserves errno */
		if (i % 50 == 0)
			log_reopen();
	}
	return NULL;
}

static void lines_of_several_threads_do_not_mix(void)
{
	pthread_t t[4];
	int lines = 0;

	log_open("log6", LOG_INFO);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, chatter, (void *)(intptr_t)i), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_join(t[i], NULL), 0);
	slurp("log6");
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
		int a, b, end = 0;

		CHECK_EQ(sscanf(line, "%*s info x thread %d says %d%n", &a, &b, &end), 2);
		CHECK_EQ(line[end], 0);
	}
	CHECK_EQ(lines, 800);
	log_open(NULL, LOG_INFO);
}

TEST_MAIN(TEST(a_line_has_time_level_component_trace_and_text),
	  TEST(messages_below_the_level_are_dropped),
	  TEST(control_characters_and_long_texts_stay_one_line),
	  TEST(reopening_follows_a_rotated_file),
	  TEST(a_file_that_cannot_be_opened_keeps_the_old_log),
	  TEST(lines_of_several_threads_do_not_mix))
