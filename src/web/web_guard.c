/* Who may see the page: the token, and the Host header. */
#include <arpa/inet.h>
#include <ctype.h>
#include <fcntl.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "web/web_impl.h"

/* ---- the token ---- */

static bool is_token_letter(char c)
{
	return isascii((unsigned char)c) && (isalnum((unsigned char)c) || c == '-' || c == '_');
}

static int check_text(const char *path, char *token, char *err, size_t err_len)
{
	size_t n = strlen(token);

	while (n > 0 && isspace((unsigned char)token[n - 1]))
		token[--n] = 0;
	if (n < WEB_TOKEN_MIN || n > WEB_TOKEN_MAX)
		return error_explain(err, err_len, -EINVAL,
				     "%s: a token has %d to %d characters; make one: "
				     "(umask 077; openssl rand -hex 16 >%s)",
				     path, WEB_TOKEN_MIN, WEB_TOKEN_MAX, path);
	for (size_t i = 0; i < n; i++)
		if (!is_token_letter(token[i]))
			return error_explain(
				err, err_len, -EINVAL,
				"%s: a token is one line of letters, digits, - and _; make one: "
				"(umask 077; openssl rand -hex 16 >%s)",
				path, path);
	return 0;
}

static int read_file(int fd, const char *path, char *token, char *err, size_t err_len)
{
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return error_explain(err, err_len, -EINVAL, "%s is no regular file", path);
	if (st.st_mode & 077)
		return error_explain(
			err, err_len, -EPERM,
			"%s can be read or changed by others (mode %03o); chmod 600 %s", path,
			(unsigned)st.st_mode & 0777, path);
	n = read(fd, token, WEB_TOKEN_MAX + 2);
	if (n < 0)
		return error_explain(err, err_len, -errno, "%s: %s", path, strerror(errno));
	token[n] = 0;
	if (strlen(token) < (size_t)n)
		token[0] = 0; /* a NUL is no part of a token */
	return check_text(path, token, err, err_len);
}

int web_token_read(const char *path, char token[WEB_TOKEN_MAX + 1], char *err, size_t err_len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), r;
	char text[WEB_TOKEN_MAX + 3];

	if (fd < 0)
		return error_explain(err, err_len, -errno,
				     "%s: %s; make one: "
				     "(umask 077; openssl rand -hex 16 >%s)",
				     path, strerror(errno), path);
	r = read_file(fd, path, text, err, err_len);
	if (r == 0)
		snprintf(token, WEB_TOKEN_MAX + 1, "%s", text);
	close(fd);
	explicit_bzero(text, sizeof(text));
	return r;
}

bool web_token_is(const struct web_guard *g, const char *given)
{
	char padded[WEB_TOKEN_MAX + 1] = { 0 };
	volatile unsigned char differs = 0;
	size_t n = given ? strnlen(given, WEB_TOKEN_MAX + 1) : 0;

	if (n <= WEB_TOKEN_MAX && given)
		memcpy(padded, given, n);
	for (size_t i = 0; i < sizeof(padded); i++)
		differs |= (unsigned char)(padded[i] ^ g->token[i]);
	return !differs && g->token[0];
}

/* ---- the Host header ---- */

static bool is_loopback(const char *name)
{
	struct in6_addr six;
	struct in_addr four;

	if (strcasecmp(name, "localhost") == 0)
		return true;
	if (inet_pton(AF_INET, name, &four) == 1)
		return ntohl(four.s_addr) >> 24 == 127;
	return inet_pton(AF_INET6, name, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

bool web_host_is_local(const char *host)
{
	char name[64];
	const char *end;

	if (!host)
		return false;
	if (host[0] == '[')
		end = strchr(++host, ']');
	else
		end = host + strcspn(host, ":");
	if (!end || end - host >= (ptrdiff_t)sizeof(name))
		return false;
	snprintf(name, sizeof(name), "%.*s", (int)(end - host), host);
	end += *end == ']';
	if (*end && (*end != ':' || strspn(end + 1, "0123456789") != strlen(end + 1)))
		return false;
	return is_loopback(name);
}
