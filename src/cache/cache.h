/* cache: blocks of files in a bank of memcached daemons, between clients and servers.
 *
 * A block never changes: its name is an HMAC over all that determines its bytes, the state of the
 * file included. A file in another state has other names, so blocks are not removed; the daemons
 * drop those that no client has asked for in a long time. Values are encrypted and authenticated,
 * because memcached has no authentication: a value that is damaged, foreign or of another name
 * counts as missing.
 *
 * A bank belongs to a loop. Its workers speak with the daemons. */
#ifndef SHEAF_CACHE_H
#define SHEAF_CACHE_H

#include "base/mac.h"
#include "core/bank.h"

struct bank;

struct bank_counts {
	uint64_t asked, hits; /* accesses: asked for in the bank; found there as a whole */
	uint64_t skipped; /* accesses that were not asked for, because it would not pay */
	uint64_t hit_bytes;
	uint64_t waits; /* for another client that fills */
	uint64_t filled, dropped; /* blocks: stored; not stored, since too many waited for it */
	uint64_t failures; /* of daemons, which are skipped for a while then */
	uint64_t bad; /* values that were no entry of ours */
	uint64_t ask_ns; /* time of accesses that were asked for */
	uint64_t probes; /* to measure the bank */
	uint64_t attr_asked, attr_hits, attr_skipped; /* attributes, as asked, hits and skipped */
	uint64_t wholes; /* of the hits: of bytes that came with attributes */
	uint64_t notices, notices_lost; /* of changes: set; not set, since too many waited */
};

/* key: of the bank, which all that use it have. -errno: the reason with the remedy is in `why`. */
int bank_new(struct loop *l, const struct conf_bank *conf, const uint8_t key[KEY_BYTES],
	     const struct uuid *fs, struct bank **out, char *why, size_t why_len);
/* Ends the workers; requests that waited for them are runnable then. Nothing is found any more. */
void bank_stop(struct bank *b);
void bank_free(struct bank *b); /* after bank_stop(); b may be NULL in both */
struct bank_counts *bank_counts(struct bank *b); /* its user adds hits, bytes and waits */
struct bank_choice *bank_choice(struct bank *b);
uint32_t bank_block_bytes(const struct bank *b);
bool bank_has_data(const struct bank *b); /* is it for blocks? */

/* What determines the bytes of a file's blocks. */
struct bank_state {
	uint64_t incarnation; /* of the metadata server's storage */
	uint64_t ino;
	uint64_t change;
	uint64_t verifier; /* of its data servers, if some data may be unsynced; else 0 */
	uint64_t size;
	uint32_t gen, obj_gen;
};

struct bank_block {
	uint64_t index; /* in the file */
	uint8_t *data; /* room for a whole block */
	uint32_t length; /* less than a block at the end of the file */
	bool is_found;
};

/* A conversation with the bank, with its blocks and their data. */
struct bank_call {
	struct job job;
	struct bank *bank;
	struct bank_call **owner; /* NULL: given up, or a store */
	struct req *q; /* of the owner */
	struct timer limit;
	struct bank_state state;
	size_t n; /* blocks; at most BANK_BATCH are looked for */
	struct bank_block *blocks;
	uint8_t *data;
	struct bank_look *look; /* attributes, instead of blocks; or NULL */
	unsigned worker;
	bool has_ticket; /* some are missing, and no other client fills them */
	bool is_taken; /* some are missing, and another client fills them */
	bool is_probe;
	unsigned class; /* of a probe */
	uint64_t began, ended;
	uint32_t failures, bad, filled;
};
/* With room for n blocks. NULL: no memory. */
struct bank_call *bank_call_new(struct bank *b, const struct bank_state *s, size_t n);
void bank_call_free(struct bank_call *c); /* c may be NULL */
void bank_add_block(struct bank_call *c, uint64_t index); /* behind the others */
/* Fills the blocks that the bank has, and asks for the ticket if some are missing. Holds q. The
 * call is lent until q goes on; if that took too long, *owner is NULL then. */
void bank_find(struct bank_call **owner, struct req *q);
/* Stores the blocks that are not found. Nothing waits for it: takes the call. */
void bank_store(struct bank_call *c);
/* Gives the ticket back: nothing is stored. Takes the call. */
void bank_give_up(struct bank_call *c);

/* Measures a conversation about these blocks; nothing waits for it. Takes the call. */
void bank_probe(struct bank_call *c, unsigned class);

/* ---- attrs.c: attributes ---- */

#define BANK_ATTR_MAX 256 /* bytes of encoded attributes */

/* What an entry has: attributes as a server told them to a client. */
struct bank_attr {
	uint64_t stamp; /* wall clock of that client before it asked, in ns */
	uint64_t incarnation; /* of the storage of the inode's server */
	uint64_t ino, change;
	uint32_t gen, length;
	uint32_t file_bytes; /* of a regular file that may have a whole; else 0 */
	uint32_t zero;
	uint8_t data[BANK_ATTR_MAX]; /* encoded by the user of the bank */
};
/* All bytes of a small file, behind the attributes of a handle. */
#define BANK_WHOLE_MAX 8192
struct bank_whole {
	struct bank_state state; /* what they belong to */
	uint32_t length; /* 0: there are none */
	uint8_t data[BANK_WHOLE_MAX];
};
/* Two entries can have the attributes of an inode: that of its handle, and that of a question (a
 * path as a user asked for it). Neither is used if there is a notice of a later change. */
struct bank_look {
	char by_handle[BANK_KEY], by_question[BANK_KEY], notice[BANK_KEY];
	bool has_handle, has_question;
	bool wants_whole; /* by a question: also look for the entry of its handle */
	bool is_found;
	struct bank_attr attr;
	struct bank_whole whole;
};
/* For bank_find(); `look` says what is found. NULL: no memory. */
struct bank_call *bank_look_new(struct bank *b);
void bank_look_handle(struct bank_call *c, uint64_t incarnation, uint64_t ino, uint32_t gen);
/* The question in two parts: all that its answer depends on. */
void bank_look_question(struct bank_call *c, const void *a, size_t n_a, const void *b, size_t n_b);
/* Stores look->attr under the names that are set; as bank_store(). */

/* For how many seconds attributes are used; 0: they are not in the bank. */
uint32_t bank_attr_seconds(const struct bank *b);

/* Server: these inodes have this `change` now (UINT64_MAX: they are gone). Nothing waits for it. */
struct bank_notice {
	uint64_t ino, change;
};
void bank_notify(struct bank *b, uint64_t incarnation, const struct bank_notice *n, size_t count);

/* ---- choice.c: does asking pay? ---- */

#define BANK_SIZES 24 /* classes of reads: powers of two */
#define BANK_ATTR BANK_SIZES /* the class of attributes */
#define BANK_CLASSES (BANK_SIZES + 1)

/* Accesses of one class. Times are means, in ns; 0: not known. */
struct bank_class {
	uint64_t plain_ns, ask_ns; /* of accesses by the servers; of conversations with the bank */
	uint32_t n_plain, n_ask; /* samples, up to the weight of the mean */
	uint64_t unprobed; /* ns of accesses since the last probe */
	uint64_t unplain; /* ns of accesses since the last one that did not ask */
	uint32_t n_asked; /* since then */
	bool is_faster; /* the bank, by so much that asking may pay */
};
struct bank_choice {
	struct bank_class classes[BANK_CLASSES];
	int64_t saved[2]; /* ns: of reads, of attributes */
	uint64_t fill_ns; /* how long clients fill */
	bool asks_always;
};
unsigned choice_class(uint64_t bytes);
/* Should this access ask? */
bool choice_asks(struct bank_choice *k, unsigned class);
/* Should the bank be measured after this access, which did not ask? */
bool choice_probes(const struct bank_choice *k, unsigned class);
void choice_note_plain(struct bank_choice *k, unsigned class, uint64_t ns);
/* A conversation took this long; some daemons failed in it. */
void choice_note_ask(struct bank_choice *k, unsigned class, uint64_t ns, bool has_failed);
/* An access that asked took this long in all, and so much of it in conversations. */
void choice_note_asked(struct bank_choice *k, unsigned class, uint64_t ns, uint64_t talk_ns);
/* How long to wait for another client that fills, in ns; how long one took, or was waited for. */
uint64_t choice_patience(const struct bank_choice *k, unsigned class);
void choice_note_fill(struct bank_choice *k, uint64_t ns);

/* ---- seal.c: names and values ---- */

#define SEAL_BYTES 32 /* before the data of a value */
struct seal;
struct seal *seal_new(const uint8_t key[KEY_BYTES], const struct uuid *fs, bool unsealed);
void seal_free(struct seal *s);
/* What an entry is for: a block, or the ticket to fill it; attributes by handle, by a question; the
 * notice of a change. */
enum bank_kind { BANK_BLOCK = 1, BANK_TICKET, BANK_HANDLE, BANK_QUESTION, BANK_NOTICE };
void seal_name(const struct seal *s, enum bank_kind kind, const struct bank_state *of,
	       uint32_t block_bytes, uint64_t index, char out[BANK_KEY]);
/* The name of what does not consist of blocks: of two parts. */
void seal_name_of(const struct seal *s, enum bank_kind kind, const void *a, size_t n_a,
		  const void *b, size_t n_b, char out[BANK_KEY]);
/* Threads: one per context, for sealing and opening. */
struct seal_context;
struct seal_context *seal_context(struct seal *s);
void seal_context_free(struct seal_context *x);
/* out: SEAL_BYTES more than n. nonce: random. */
int seal_close(struct seal_context *x, const char name[BANK_KEY], const uint8_t nonce[12],
	       const void *data, size_t n, uint8_t *out);
/* -EBADMSG: not a value of this name. n: SEAL_BYTES more than `out` has room for. */
int seal_open(struct seal_context *x, const char name[BANK_KEY], const uint8_t *value, size_t n,
	      void *out);

#endif
