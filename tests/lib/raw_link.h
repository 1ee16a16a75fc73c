/* A link that a test speaks by hand: frames over a blocking socket, every field under the test's
 * control. */
#ifndef SHEAF_TEST_RAW_LINK_H
#define SHEAF_TEST_RAW_LINK_H

#include "cluster.h"
#include "net/frame.h"
#include "base/mac.h"
#include "net/backend.h"

struct raw {
	int fd;
	struct conf *conf;
	uint8_t key[KEY_BYTES];
	const char *key_name; /* "": the default key */
	uint32_t uid, gid; /* the user that requests act for */
	uint64_t session;
	uint8_t secret[16];
	uint8_t hello[HELLO_MAX], response[HELLO_MAX]; /* as sent, for replay attacks */
	uint32_t hello_len, response_len;
	uint8_t body[MSG_MAX + 64]; /* body of the last frame received */
	struct wire_frame_head head;
	struct arena arena; /* memory of decoded arrays */
};

struct raw_body {
	uint8_t b[MSG_MAX + 4096];
	uint32_t len;
};

/* A TCP connection to a server; receives time out after PATIENCE_S. */
int raw_connect(const struct cluster *c, int server);

/* Sends all bytes. Returns false if the connection is closed. */
bool raw_write(int fd, const void *p, size_t n);

/* Has the server closed the connection? Reads and drops what arrives before that. */
bool raw_closed(int fd);

/* Sends a frame with this head, whatever it says, and these bytes. */
bool raw_frame(int fd, struct wire_frame_head h, const void *body, size_t n);

/* Sends a well-formed frame. */
bool raw_send(struct raw *r, uint32_t kind, uint64_t tag, const void *body, uint32_t n);

/* Receives the next frame, of any kind. */
bool raw_recv(struct raw *r);

/* A HELLO of this link with a new nonce. */
struct wire_hello raw_hello(const struct raw *r, uint32_t target);

/* Sends a HELLO and keeps its bytes in hello[]. */
bool raw_send_hello(struct raw *r, struct wire_hello *h);

/* Answers the challenge in body with this link's key. */
bool raw_respond(struct raw *r);

/* Receives a frame and returns raw_welcome_status() of it. */
int raw_welcome(struct raw *r);

/* Connects; the handshake will use this key. */
void raw_open_with(struct raw *r, const struct cluster *c, int server, const char *key_name);

/* Connects; the handshake will use the default key. */
void raw_open(struct raw *r, const struct cluster *c, int server);

/* Closes the connection and frees what the link holds. */
void raw_close(struct raw *r);

/* Does the whole handshake: 0, or the error it was refused with (-1: closed without an answer). */
int raw_greet(struct raw *r, int server);

/* Opens an authenticated link. */
void raw_up(struct raw *r, const struct cluster *c, int server);

/* The tag of a request. */
uint64_t raw_tag(uint32_t slot, uint32_t sequence);

/* Sends a request; `put` may encode false arguments. */
bool raw_request(struct raw *r, uint32_t op, uint32_t slot, uint32_t sequence, xdr_any put,
		 void *args);

/* Receives frames up to the next reply; returns its status (0 or a positive errno) and result; -1:
 * the link is closed. */
int raw_reply(struct raw *r, xdr_any get, void *res);

/* raw_request() and raw_reply(). */
int raw_call(struct raw *r, uint32_t op, uint32_t slot, uint32_t sequence, xdr_any put, void *args,
	     xdr_any get, void *res);

/* Makes a session, or resumes r->session. Returns 0, a positive errno, or -1: closed. */
int raw_session(struct raw *r);

/* Opens an authenticated link with a session. */
void raw_up_session(struct raw *r, const struct cluster *c, int server);

#endif
