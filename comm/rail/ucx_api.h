/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * UCX, loaded when the first UCX rail opens and not before.
 *
 * UCX installs its signal handlers and memory hooks while it is being loaded. A process that merely links Shunt, or
 * that uses UCX for something else, must not get ours: so it is opened at run time, privately, with those switched
 * off for that moment, and not at all when rails run over something else.
 */
#ifndef SHUNT_RAIL_UCX_API_H
#define SHUNT_RAIL_UCX_API_H

#include <shunt/status.h>
#include <ucp/api/ucp.h>

#define SHUNT__UCX_FUNCTIONS(F) \
    F(ucp_get_version_string) \
    F(ucp_config_read) \
    F(ucp_config_modify) \
    F(ucp_config_release) \
    F(ucp_init_version) \
    F(ucp_cleanup) \
    F(ucp_worker_create) \
    F(ucp_worker_destroy) \
    F(ucp_worker_progress) \
    F(ucp_worker_get_efd) \
    F(ucp_worker_arm) \
    F(ucp_worker_set_am_recv_handler) \
    F(ucp_listener_create) \
    F(ucp_listener_destroy) \
    F(ucp_listener_query) \
    F(ucp_listener_reject) \
    F(ucp_conn_request_query) \
    F(ucp_ep_create) \
    F(ucp_ep_close_nbx) \
    F(ucp_am_send_nbx) \
    F(ucp_request_check_status) \
    F(ucp_request_free) \
    F(ucs_status_string)

struct shunt__ucx_api {
#define SHUNT__UCX_MEMBER(name) __typeof__(name) *name;
    SHUNT__UCX_FUNCTIONS(SHUNT__UCX_MEMBER)
#undef SHUNT__UCX_MEMBER
};

/* Loads UCX at the first call; UNSUPPORTED with the reason when this machine has none. Any thread. */
shunt_status_t shunt__ucx_load(const struct shunt__ucx_api **api);

#endif
