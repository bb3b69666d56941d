// nfsload: a small asynchronous NFSv3 load generator on libnfs.
//
// It measures two servers with a client that is part of neither project. One thread, N connections,
// a queue of fixed depth on each, one file. It prints one line of JSON.
//
//   nfsload URL --op randread|randwrite|read|write [--bs BYTES] [--size BYTES] [--depth N] [--connections N]
//           [--seconds S] [--warmup S]
//
// URL is libnfs's: nfs://host/export/path/file?nfsport=P&mountport=P&version=3. The file must exist and hold --size
// bytes. Sequential connections start at equal distances from one another and wrap at the end of the file.
// Writes are UNSTABLE as libnfs sends them by default; the time measured excludes connecting, opening and warm-up.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <nfsc/libnfs.h>

enum op { RANDREAD, RANDWRITE, SEQREAD, SEQWRITE };
static const char *const op_names[] = {"randread", "randwrite", "read", "write"};

enum { MAX_CONNECTIONS = 64, MAX_DEPTH = 256, MAX_BLOCK = 1 << 20, BUCKETS = 64 * 16 };

struct connection;

// One outstanding request.
struct slot {
    struct connection *connection;
    uint64_t started_ns;
    char *buffer;
};

struct connection {
    struct nfs_context *nfs;
    struct nfsfh *file;
    struct slot slots[MAX_DEPTH];
    uint64_t next_block;
    int in_flight;
};

static enum op op = RANDREAD;
static uint64_t block_size = 4096, file_size = 256ull << 20;
static int depth = 8, connections = 1;
static double seconds = 5, warmup = 0.5;

static struct connection conns[MAX_CONNECTIONS];
static uint64_t blocks;
static uint64_t completed; // since the warm-up ended
static bool measuring, stopping;
static uint64_t random_state = 0x9e3779b97f4a7c15ull;

// Latencies in buckets whose width is 1/16 of their power of two: an error of at most 6 % from 16 ns upwards.
static uint64_t latency[BUCKETS];

static _Noreturn void die(const char *what, const char *why) {
    fprintf(stderr, "nfsload: %s: %s\n", what, why);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static uint64_t next_random(void) { // xorshift64*
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * 0x2545f4914f6cdd1dull;
}

static int bucket_of(uint64_t ns) {
    if (ns < 16) return (int)ns;
    int power = 63 - __builtin_clzll(ns);
    return (power - 3) * 16 + (int)((ns >> (power - 4)) & 15);
}

static uint64_t bucket_floor(int bucket) {
    if (bucket < 16) return (uint64_t)bucket;
    int power = bucket / 16 + 3;
    return (1ull << power) + ((uint64_t)(bucket % 16) << (power - 4));
}

static double percentile_us(double fraction, uint64_t total) {
    uint64_t rank = (uint64_t)(fraction * (double)total), seen = 0;
    for (int i = 0; i < BUCKETS; i++) {
        seen += latency[i];
        if (seen > rank) return (double)bucket_floor(i) / 1000.0;
    }
    return 0;
}

static void submit(struct slot *slot);

static void done(int result, struct nfs_context *nfs, void *data, void *private_data) {
    struct slot *slot = private_data;
    (void)data;
    if (result < 0) die("I/O failed", nfs_get_error(nfs));
    if ((uint64_t)result != block_size) die("short I/O", "is the file as long as --size says?");
    if (measuring) {
        completed++;
        latency[bucket_of(now_ns() - slot->started_ns)]++;
    }
    slot->connection->in_flight--;
    if (!stopping) submit(slot);
}

static void submit(struct slot *slot) {
    struct connection *c = slot->connection;
    uint64_t block;
    if (op == RANDREAD || op == RANDWRITE) {
        block = next_random() % blocks;
    } else {
        block = c->next_block++ % blocks;
    }
    uint64_t offset = block * block_size;
    int rc;
    slot->started_ns = now_ns();
#ifdef LIBNFS_API_V2
    if (op == RANDREAD || op == SEQREAD)
        rc = nfs_pread_async(c->nfs, c->file, slot->buffer, block_size, offset, done, slot);
    else
        rc = nfs_pwrite_async(c->nfs, c->file, slot->buffer, block_size, offset, done, slot);
#else
    if (op == RANDREAD || op == SEQREAD)
        rc = nfs_pread_async(c->nfs, c->file, offset, block_size, done, slot);
    else
        rc = nfs_pwrite_async(c->nfs, c->file, offset, block_size, slot->buffer, done, slot);
#endif
    if (rc < 0) die("cannot queue", nfs_get_error(c->nfs));
    c->in_flight++;
}

static void connect_one(struct connection *c, const char *text) {
    c->nfs = nfs_init_context();
    if (!c->nfs) die("nfs_init_context", "out of memory");
    struct nfs_url *url = nfs_parse_url_full(c->nfs, text);
    if (!url) die(text, nfs_get_error(c->nfs));
    if (nfs_mount(c->nfs, url->server, url->path)) die("mount", nfs_get_error(c->nfs));
    if (nfs_open(c->nfs, url->file, O_RDWR, &c->file)) die("open", nfs_get_error(c->nfs));
    nfs_destroy_url(url);
    for (int i = 0; i < depth; i++) {
        c->slots[i].connection = c;
        c->slots[i].buffer = malloc(block_size);
        if (!c->slots[i].buffer) die("malloc", strerror(errno));
        memset(c->slots[i].buffer, 'a' + i % 26, block_size);
    }
}

// Serves every connection until `until_ns`, or, if that is 0, until no request is in flight.
static void run(uint64_t until_ns) {
    struct pollfd fds[MAX_CONNECTIONS];
    for (;;) {
        int in_flight = 0;
        for (int i = 0; i < connections; i++) {
            fds[i].fd = nfs_get_fd(conns[i].nfs);
            fds[i].events = (short)nfs_which_events(conns[i].nfs);
            fds[i].revents = 0;
            in_flight += conns[i].in_flight;
        }
        if (until_ns ? now_ns() >= until_ns : in_flight == 0) return;
        int ready = poll(fds, (nfds_t)connections, 10000);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) die("poll", ready ? strerror(errno) : "the server has not answered for 10 s");
        for (int i = 0; i < connections; i++)
            if (fds[i].revents && nfs_service(conns[i].nfs, fds[i].revents) < 0)
                die("connection", nfs_get_error(conns[i].nfs));
    }
}

static double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static double number(const char *option, const char *text, double min, double max) {
    char *end;
    double value = text ? strtod(text, &end) : 0;
    if (!text || end == text || *end || !(value >= min && value <= max)) {
        fprintf(stderr, "nfsload: %s wants a number from %g to %g, not '%s'\n", option, min, max, text ? text : "");
        exit(2);
    }
    return value;
}

int main(int argc, char **argv) {
    const char *url = NULL;
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (strncmp(arg, "--", 2) != 0) {
            url = arg;
            continue;
        }
        i++;
        if (!strcmp(arg, "--op")) {
            int found = -1;
            for (int o = 0; o < 4; o++)
                if (next && !strcmp(next, op_names[o])) found = o;
            if (found < 0) die("--op", "wants randread, randwrite, read or write");
            op = (enum op)found;
        } else if (!strcmp(arg, "--bs")) {
            block_size = (uint64_t)number(arg, next, 1, MAX_BLOCK);
        } else if (!strcmp(arg, "--size")) {
            file_size = (uint64_t)number(arg, next, 1, 1e15);
        } else if (!strcmp(arg, "--depth")) {
            depth = (int)number(arg, next, 1, MAX_DEPTH);
        } else if (!strcmp(arg, "--connections")) {
            connections = (int)number(arg, next, 1, MAX_CONNECTIONS);
        } else if (!strcmp(arg, "--seconds")) {
            seconds = number(arg, next, 0.01, 3600);
        } else if (!strcmp(arg, "--warmup")) {
            warmup = number(arg, next, 0, 3600);
        } else {
            die(arg, "no such option");
        }
    }
    if (!url) die("usage", "nfsload URL --op randread|randwrite|read|write [--bs N] [--size N] [--depth N] "
                           "[--connections N] [--seconds S] [--warmup S]");
    blocks = file_size / block_size;
    if (blocks == 0) die("--size", "smaller than --bs");

    for (int i = 0; i < connections; i++) {
        connect_one(&conns[i], url);
        conns[i].next_block = blocks * (uint64_t)i / (uint64_t)connections;
    }
    for (int i = 0; i < connections; i++)
        for (int s = 0; s < depth; s++) submit(&conns[i].slots[s]);

    if (warmup > 0) run(now_ns() + (uint64_t)(warmup * 1e9));
    measuring = true;
    double cpu = cpu_seconds();
    uint64_t start = now_ns();
    run(start + (uint64_t)(seconds * 1e9));
    double elapsed = (double)(now_ns() - start) / 1e9;
    cpu = cpu_seconds() - cpu;
    measuring = false;
    stopping = true;
    run(0);

    printf("{\"op\":\"%s\",\"bs\":%" PRIu64 ",\"connections\":%d,\"depth\":%d,\"seconds\":%.3f,\"ops\":%" PRIu64
           ",\"ops_per_s\":%.1f,\"mb_per_s\":%.2f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"client_cpu_us_per_op\":%.2f}\n",
           op_names[op], block_size, connections, depth, elapsed, completed, (double)completed / elapsed,
           (double)completed * (double)block_size / elapsed / 1e6, percentile_us(0.5, completed),
           percentile_us(0.99, completed), completed ? cpu * 1e6 / (double)completed : 0);
    for (int i = 0; i < connections; i++) {
        nfs_close(conns[i].nfs, conns[i].file);
        nfs_destroy_context(conns[i].nfs);
    }
    return 0;
}
