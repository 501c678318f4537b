/*
 * crc32c.h - the checksum of frames: CRC-32C (Castagnoli's polynomial), as iSCSI and SCTP have it.
 *
 * Role:   tells a flipped bit. It is no protection against somebody who changes bytes on purpose.
 * Thread: any; pure functions. Tables are made at the first call.
 */
#ifndef GY_CRC32C_H
#define GY_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of the bytes so far continued by these; 0 to begin with. By the processor's
 * instruction where it has one. */
uint32_t gy_crc32c(uint32_t sum, const void *data, size_t bytes);
/* The same without that instruction. */
uint32_t gy_crc32c_portable(uint32_t sum, const void *data, size_t bytes);
/* "sse4.2", "armv8" or "portable": how gy_crc32c does it here. */
const char *gy_crc32c_way(void);

#endif
