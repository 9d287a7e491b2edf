/* SPDX-License-Identifier: BSD-3-Clause */
/* Names and texts of status codes. */
#include <stddef.h>
#include <shunt/status.h>

static const struct {
    shunt_status_t code;
    const char *name;
    const char *text;
} table[] = {
    {SHUNT_OK, "OK", "success"},
    {SHUNT_IN_PROGRESS, "IN_PROGRESS", "not done yet"},
    {SHUNT_ERR_INVALID, "INVALID", "an argument is wrong"},
    {SHUNT_ERR_TRUNCATED, "TRUNCATED", "the message is longer than the receive buffer"},
    {SHUNT_ERR_CANCELED, "CANCELED", "the request was cancelled"},
    {SHUNT_ERR_MISMATCH, "MISMATCH", "ranks called the same collective with different arguments"},
    {SHUNT_ERR_UNSUPPORTED, "UNSUPPORTED", "not supported by this build or machine"},
    {SHUNT_ERR_NOT_FOUND, "NOT_FOUND", "what was named does not exist"},
    {SHUNT_ERR_FORMAT, "FORMAT", "the data is not in the expected format"},
    {SHUNT_ERR_AGAIN, "AGAIN", "no room just now"},
    {SHUNT_ERR_PEER, "PEER", "a peer's process died"},
    {SHUNT_ERR_TIMEOUT, "TIMEOUT", "a peer did not answer in time"},
    {SHUNT_ERR_RAIL, "RAIL", "a rail failed"},
    {SHUNT_ERR_REVOKED, "REVOKED", "the communicator was revoked"},
    {SHUNT_ERR_ABORTED, "ABORTED", "the communicator was aborted"},
    {SHUNT_ERR_EXCLUDED, "EXCLUDED", "the other ranks agreed to go on without this one"},
    {SHUNT_ERR_NO_MEMORY, "NO_MEMORY", "out of memory"},
    {SHUNT_ERR_LIMIT, "LIMIT", "a limit of this process or machine was reached"},
    {SHUNT_ERR_PERMISSION, "PERMISSION", "a permission is missing"},
    {SHUNT_ERR_SYSTEM, "SYSTEM", "a system call failed"},
    {SHUNT_ERR_AUTH, "AUTH", "the other side does not know this job's key"},
    {SHUNT_ERR_VERSION, "VERSION", "the other side runs another version of Shunt"},
    {SHUNT_ERR_INTERNAL, "INTERNAL", "a bug in Shunt"},
};

const char *shunt_status_name(shunt_status_t status)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i].code == status)
            return table[i].name;
    return "UNKNOWN";
}

const char *shunt_status_text(shunt_status_t status)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i].code == status)
            return table[i].text;
    return "a status code this version of Shunt does not know";
}
