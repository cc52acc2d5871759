#pragma once
/*
 * Serves the page faults of a paused and then resumed pod from the image, and brings the rest back in
 * the background.  One thread reads the events and copies the pages of all address spaces, so that a
 * copy can never slip in between reading an event and acting on it.
 */
#include "base/err.h"
#include "shim/hibernate/image.h"
#include "shim/hibernate/space.h"

/* Messages on the control socket (SOCK_SEQPACKET), both directions. */
enum pager_msg {
    PAGER_NONE,
    PAGER_PAUSED, /* pager: done; `a` bytes saved, `b` milliseconds, `code` 1 = without userfaultfd;
                     descriptors follow one by one */
    PAGER_FAILED, /* pager: nothing was moved out (code, text); it ends */
    PAGER_ASKED, /* pager: all threads have been asked to stop; calls that are held for them must be let go */
    PAGER_UFFD,  /* pager: one more userfaultfd, to be held open by the shim */
    PAGER_RESUME,    /* shim: bring everything back */
    PAGER_RESUMABLE, /* pager: the pod may be thawed now */
    PAGER_FINISHED,  /* pager: everything is back; close the held userfaultfds */
    PAGER_CLOSED,    /* shim: they are closed; end */
    PAGER_BROKEN,    /* pager: memory cannot be given back (code, text); the pod must be killed */
};
struct pager_message {
    uint32_t type;
    int32_t code;
    uint64_t a, b;
    char text[ERR_TEXT_MAX];
};
int pager_send(int sock, enum pager_msg type, const struct pager_message *more, int fd /* -1 = none */);

struct space_list {
    struct space *items;
    size_t n, cap;
};
/* Returns when everything was brought back and the shim has closed its copies. <0: the memory is lost. */
int serve_run(struct space_list *spaces, const struct image *img, int control, struct err *e);
