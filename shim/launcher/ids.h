#pragma once
/*
 * Ranges of 65536 host ids for the pods' user namespaces.  One file for each range in use,
 * <state_dir>/ids/<base>, which contains the pod's id; the shim that owns it holds a lock on the file,
 * so a file without a lock belongs to a shim that was killed.  Such a range is used again only when no
 * process with an id from it is left.
 */
#include <stdint.h>

#include "base/err.h"

#define IDS_FIRST 0x70000000u /* above systemd-nspawn's ranges, below 2^31 (limit of ping_group_range) */
#define IDS_END   0x7ffe0000u /* exclusive; the next range is systemd's "foreign" one */
#define IDS_SIZE  65536u

/* *ret_lock is the caller's descriptor; the range is held while it is open. */
int ids_take(const char *state_dir, const char *pod_id, uint32_t *ret_base, int *ret_lock, struct err *e);
/* Gives a held range back: all processes are gone. Takes the lock descriptor. */
void ids_give_back(int lock);
/* Gives back what pod_id held, if its holder is dead. 0 also when there is nothing. -EBUSY: processes are
 * left. */
int ids_release(const char *state_dir, const char *pod_id, struct err *e);
