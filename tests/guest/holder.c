// Holds a file open in the QEMU guest and runs one command per input line on it; replies to each with a line.
//
//   holder FILE
//
// lock r|w FIRST LENGTH, lockw r|w FIRST LENGTH (waits), unlock FIRST LENGTH, write AT TEXT, read AT LENGTH.
// count TIMES (TIMES times: locks the file, waiting for the lock, adds one to the number in it, and unlocks it).
// clone OTHER (shares the other file's blocks), hole FIRST LENGTH, room FIRST LENGTH, seek data|hole AT (prints the offset).
// limit DEVICE u|g ID SOFT HARD (the quota of a user or group on a disk, in KiB).
// Replies: "ok", "no" (the lock is held by another owner), the bytes read, or "errno N".
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/quota.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void answer(int failed) {
    if (!failed) puts("ok");
    else if (errno == EAGAIN || errno == EACCES) puts("no");
    else printf("errno %d\n", errno);
}

static int lock(int fd, int command, short type, long first, long length) {
    struct flock flock = {.l_type = type, .l_whence = SEEK_SET, .l_start = first, .l_len = length};
    return fcntl(fd, command, &flock);
}

static int count(int fd, long times) {
    char text[32];
    while (times-- > 0) {
        memset(text, 0, sizeof text);
        if (lock(fd, F_SETLKW, F_WRLCK, 0, 0) < 0 || pread(fd, text, sizeof text - 1, 0) < 0) return -1;
        int length = snprintf(text, sizeof text, "%08ld\n", strtol(text, NULL, 10) + 1);
        if (pwrite(fd, text, (size_t)length, 0) != length || lock(fd, F_SETLK, F_UNLCK, 0, 0) < 0) return -1;
    }
    return 0;
}

int main(int argc, char **argv) {
    char line[4096], text[4096], kind;
    long at, length, id;
    int fd = argc == 2 ? open(argv[1], O_RDWR | O_CREAT, 0666) : -1;
    if (fd < 0) {
        perror("holder");
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "lock %c %ld %ld", &kind, &at, &length) == 3) {
            answer(lock(fd, F_SETLK, kind == 'w' ? F_WRLCK : F_RDLCK, at, length) < 0);
        } else if (sscanf(line, "lockw %c %ld %ld", &kind, &at, &length) == 3) {
            answer(lock(fd, F_SETLKW, kind == 'w' ? F_WRLCK : F_RDLCK, at, length) < 0);
        } else if (sscanf(line, "unlock %ld %ld", &at, &length) == 2) {
            answer(lock(fd, F_SETLK, F_UNLCK, at, length) < 0);
        } else if (sscanf(line, "write %ld %4095s", &at, text) == 2) {
            answer(pwrite(fd, text, strlen(text), at) != (ssize_t)strlen(text) || fsync(fd) < 0);
        } else if (sscanf(line, "read %ld %ld", &at, &length) == 2 && length < (long)sizeof text) {
            ssize_t count = pread(fd, text, (size_t)length, at);
            if (count < 0) answer(1);
            else printf("%.*s\n", (int)count, text);
        } else if (sscanf(line, "count %ld", &length) == 1) {
            answer(count(fd, length) < 0);
        } else if (sscanf(line, "clone %4095s", text) == 1) {
            int other = open(text, O_RDONLY);
            answer(other < 0 || ioctl(fd, FICLONE, other) < 0);
            if (other >= 0) close(other);
        } else if (sscanf(line, "hole %ld %ld", &at, &length) == 2) {
            answer(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, length) < 0);
        } else if (sscanf(line, "room %ld %ld", &at, &length) == 2) {
            answer(fallocate(fd, 0, at, length) < 0);
        } else if (sscanf(line, "seek %4095s %ld", text, &at) == 2) {
            off_t found = lseek(fd, at, strcmp(text, "data") ? SEEK_HOLE : SEEK_DATA);
            if (found < 0) answer(1);
            else printf("%ld\n", (long)found);
        } else if (sscanf(line, "limit %4095s %c %ld %ld %ld", text, &kind, &id, &at, &length) == 5) {
            struct if_dqblk quota = {.dqb_bsoftlimit = (__u64)at, .dqb_bhardlimit = (__u64)length, .dqb_valid = QIF_BLIMITS};
            int type = kind == 'u' ? USRQUOTA : GRPQUOTA;
            answer(syscall(SYS_quotactl, QCMD(Q_SETQUOTA, type), text, id, &quota) < 0);
        } else {
            puts("what?");
        }
    }
    return 0;
}
