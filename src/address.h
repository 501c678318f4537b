/*
 * address.h - socket addresses, interfaces, and what identifies a host.
 *
 * Role:   parse and print addresses; choose the local addresses to listen on; rank a peer's
 *         addresses for dialling.
 * Thread: any; nothing here blocks (names are resolved by dial.c on the loop's thread pool).
 */
#ifndef GY_ADDRESS_H
#define GY_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "settings.h"

#define GY_ADDRESS_MAX 8 /* addresses a process advertises at most */
#define GY_ADDRESS_TEXT 80

#define GY_LOCAL_BYTES \
  16 /* what names a process to the others of its host; all zero: it has no such name */

struct gy_address { /* an IPv4 or IPv6 address with port, or a local one; the union is what the socket calls take */
  union {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un local; /* an abstract name of GY_LOCAL_NAME bytes */
  } sa;
};

socklen_t gy_address_len(const struct gy_address *a);
uint16_t gy_address_port(const struct gy_address *a);
void gy_address_set_port(struct gy_address *a, uint16_t port);
/* Also of a local one: it cannot leave the host. */
bool gy_address_is_loopback(const struct gy_address *a);
/* The Unix socket, in the abstract namespace, of the process of that name. */
void gy_address_of_local(const uint8_t name[GY_LOCAL_BYTES], struct gy_address *out);
bool gy_address_is_link_local(const struct gy_address *a);
/* "10.0.0.1:7000", "[fe80::1%eth0]:7000". Returns out. */
const char *gy_address_text(const struct gy_address *a, char out[GY_ADDRESS_TEXT]);
/* Splits "host:port", "[v6]:port" into its parts without resolving. ARG with the rule otherwise. */
gyre_status gy_address_split(const char *text, char *host, size_t capacity, uint16_t *port);
/* A numeric host only; false if it is a name. */
bool gy_address_numeric(const char *host, uint16_t port, struct gy_address *out);
/* The address at this / the other end of a connected socket. */
gyre_status gy_address_local(int fd, struct gy_address *out);
gyre_status gy_address_peer(int fd, struct gy_address *out);

/* The local addresses (port 0) to listen on, best first: settings->iface by name or CIDR; otherwise
 * all that are up, global ones before link-local and tunnels, loopback last. Without a secret and
 * without `insecure`: loopback only. Nothing that matches is ARG, and the text lists what there
 * is. */
gyre_status gy_address_choose(const struct gy_settings *s, bool has_secret,
                              struct gy_address out[GY_ADDRESS_MAX], size_t *n);
/* One line for each interface address, for gyre-info and error texts: "eth0 10.0.0.1/24 up, lo
 * 127.0.0.1/8 up". */
size_t gy_address_list(char *out, size_t capacity);
/* Orders a peer's addresses for dialling from here: same host: loopback first; other host: never
 * loopback, those of a subnet we are on (by an interface that settings->iface takes) first,
 * link-local ones and those that we have, too, last. Returns how many are left. */
size_t gy_address_order(const struct gy_settings *s, const struct gy_address *from, size_t n,
                        bool same_host, struct gy_address out[GY_ADDRESS_MAX]);

/* 16 bytes that are equal for two processes exactly if they share a kernel boot and a network
 * namespace. */
void gy_host_id(uint8_t out[16]);
/* Host name, always terminated; "?" if unknown. */
void gy_host_name(char *out, size_t capacity);

#endif
