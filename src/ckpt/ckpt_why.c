/* Explanations of failures, messages to users, and threads. Threads: any; an explanation belongs
 * to the thread whose call failed. */
#include <signal.h>
#include <stdarg.h>

#include "ckpt/ckpt_impl.h"

static _Thread_local char why[CKPT_WHY];

int ckpt_fail(int err, const char *fmt, ...)
{
	char text[CKPT_WHY]; /* an argument may be the previous explanation */
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(why, sizeof(why), "%s", text);
	return err;
}

void ckpt_say(const struct sheaf_ckpt *c, const char *fmt, ...)
{
	char text[CKPT_WHY];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "sheaf-ckpt: %s: %s\n", c->store.job, text);
}

const char *sheaf_ckpt_why(void)
{
	return why;
}

int ckpt_thread_start(pthread_t *t, void *(*fn)(void *), void *arg)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV); /* its handlers serve faults of this thread, too */
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(t, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -r;
}
