/*
 * The attack that continuing would allow without the socket guard: one thread calls sendto and connect on
 * a descriptor that another thread keeps exchanging, an AF_UNIX socket (continues in the kernel) for an
 * internet socket (must not).  The destination 127.0.0.2 is denied; whatever arrives there got through.
 * Prints: attempts, answers EPERM (the guard caught an exchange in time), datagrams that arrived.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SLOT 50

static int inet_fd, unix_fd;
static volatile int stop;

static void *exchange(void *x)
{
    (void)x;
    while (!stop) {
        dup2(unix_fd, SLOT);
        dup2(inet_fd, SLOT);
    }
    return NULL;
}

int main(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {htonl(0x7f000002)}};
    socklen_t len = sizeof to;
    char buffer[16];
    long attempts = 0, caught = 0, arrived = 0;
    pthread_t thread;

    int receiver = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    if (bind(receiver, (struct sockaddr *)&to, sizeof to) < 0 ||
        getsockname(receiver, (struct sockaddr *)&to, &len) < 0)
        return 1;
    inet_fd = socket(AF_INET, SOCK_DGRAM, 0);
    unix_fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (sendto(inet_fd, "x", 1, 0, (struct sockaddr *)&to, sizeof to) >= 0 || errno != EACCES) {
        fprintf(stderr, "127.0.0.2 is not denied\n");
        return 1;
    }
    dup2(unix_fd, SLOT);
    pthread_create(&thread, NULL, exchange, NULL);
    struct iovec part = {"x", 1};
    struct msghdr h = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &part, .msg_iovlen = 1};
    for (time_t end = time(NULL) + 5; time(NULL) < end; attempts++) {
        long r = attempts % 3 == 0   ? sendto(SLOT, "x", 1, 0, (struct sockaddr *)&to, sizeof to)
                 : attempts % 3 == 1 ? sendmsg(SLOT, &h, 0)
                                     : connect(SLOT, (struct sockaddr *)&to, sizeof to);
        caught += r < 0 && errno == EPERM;
        arrived += r >= 0 && attempts % 3 == 2; /* connected */
        while (recv(receiver, buffer, sizeof buffer, 0) >= 0)
            arrived++;
    }
    stop = 1;
    pthread_join(thread, NULL);
    printf("%ld attempts, %ld caught, %ld arrived\n", attempts, caught, arrived);
    return 0;
}
