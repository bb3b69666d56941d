// A service manager in the QEMU guest: runs a service, starts it again whenever it ends, and stores descriptors for it (FDSTORE
// of sd_notify(3)), as systemd does.
//
//   manager SOCKET PIDFILE PROGRAM ARGUMENT...
//
// SOCKET is where it listens, and PIDFILE gets the service's process id.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 100, FIRST = 3, ASIDE = 300 };

static struct {
    char name[256];
    int fd;
} stored[MOST];
static int count;

static void check(int result, const char *what) {
    if (result < 0) {
        perror(what);
        exit(1);
    }
}

static void receive(int notify) {
    char text[4096], space[CMSG_SPACE(sizeof(int))], *name;
    struct iovec part = {text, sizeof text - 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    ssize_t length = recvmsg(notify, &message, MSG_CMSG_CLOEXEC);
    int fd = -1;
    check((int)length, "recvmsg");
    text[length] = 0;
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    if (control && control->cmsg_type == SCM_RIGHTS) memcpy(&fd, CMSG_DATA(control), sizeof fd);
    if (!(name = strstr(text, "\nFDNAME="))) return;
    name += strlen("\nFDNAME=");
    name[strcspn(name, "\n")] = 0;
    if (!strncmp(text, "FDSTORE=1\n", 10) && fd >= 0 && count < MOST) {
        snprintf(stored[count].name, sizeof stored[count].name, "%s", name);
        // Out of the way of the numbers at which the service finds them.
        check(stored[count++].fd = fcntl(fd, F_DUPFD_CLOEXEC, ASIDE), "dup");
        close(fd);
    } else if (!strncmp(text, "FDSTOREREMOVE=1\n", 16)) {
        for (int i = 0; i < count;) {
            if (strcmp(stored[i].name, name)) i++;
            else {
                close(stored[i].fd);
                stored[i] = stored[--count];
            }
        }
    }
}

static pid_t start(char **arguments) {
    pid_t pid = fork();
    check(pid, "fork");
    if (pid) return pid;
    char names[MOST * 257] = "", *end = names, number[16];
    for (int i = 0; i < count; i++) {
        check(dup2(stored[i].fd, FIRST + i), "dup2");
        if (i) *end++ = ':';
        end = stpcpy(end, stored[i].name);
    }
    sprintf(number, "%d", getpid());
    setenv("LISTEN_PID", number, 1);
    sprintf(number, "%d", count);
    setenv("LISTEN_FDS", number, 1);
    setenv("LISTEN_FDNAMES", names, 1);
    execvp(arguments[0], arguments);
    perror(arguments[0]);
    _exit(127);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    int notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", argv[1]);
    check(bind(notify, (struct sockaddr *)&address, sizeof address), argv[1]);
    // The numbers of the passed descriptors are free in the service.
    check(notify = fcntl(notify, F_DUPFD_CLOEXEC, ASIDE), "dup");
    setenv("NOTIFY_SOCKET", argv[1], 1);
    setenv("FDSTORE", "100", 1);
    for (;;) {
        pid_t pid = start(argv + 3);
        FILE *file = fopen(argv[2], "w");
        if (!file) return 1;
        fprintf(file, "%d\n", (int)pid);
        fclose(file);
        struct pollfd ready = {notify, POLLIN, 0};
        int is_running = 1;
        // What it has sent before its end is stored before the next start.
        while (poll(&ready, 1, is_running ? 100 : 0) > 0 || is_running) {
            if (ready.revents & POLLIN) receive(notify);
            if (is_running && waitpid(pid, NULL, WNOHANG) == pid) is_running = 0;
            ready.revents = 0;
        }
    }
}
