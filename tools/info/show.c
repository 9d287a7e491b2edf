/* SPDX-License-Identifier: BSD-3-Clause */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include "info.h"

static const char *const verdict_words[] = {"ok", "hurts", "stops"};

static void rate_text(const shunt_topo_nic_t *nic, char *text, size_t size)
{
    if (!nic->rate_known)
        snprintf(text, size, "rate unknown");
    else if (nic->rate >= 1000000000ull)
        snprintf(text, size, "%.4g Gbit/s", (double)nic->rate / 1e9);
    else
        snprintf(text, size, "%.4g Mbit/s", (double)nic->rate / 1e6);
}

static const char *rail_word(const shunt_topo_rail_t *rail)
{
    return rail->state == SHUNT_TOPO_RAIL_USED ? "used" : rail->state == SHUNT_TOPO_RAIL_ABSENT ? "absent" : "unused";
}

static void show_build(void)
{
    const shunt_feature_t *f;

    printf("shunt %s\n\nbuild      %s\n", shunt_version(), shunt_build_text());
    for (unsigned i = 0; (f = shunt_feature_get(i)); i++)
        printf("%-10s %-6s %-12s %s\n", i == 0 ? "rails over" : f->is_rail ? "" : "start-up", f->name,
               f->built ? "yes" : "not built", f->what);
}

static void show_nics(const struct facts *facts)
{
    printf("\nNICs%s%s\n", facts->rails ? ", decided by " : "", facts->rails ? facts->rails->decided_by : "");
    for (unsigned i = 0; facts->rails && i < facts->rails->n; i++) {
        const shunt_topo_rail_t *r = &facts->rails->rail[i];
        char rate[40] = "";

        if (r->nic)
            rate_text(r->nic, rate, sizeof(rate));
        printf("  %-7s %-12s %-14s %-10s %s\n", rail_word(r), r->name, rate,
               r->nic ? shunt_topo_nic_state_name(r->nic->state) : "", r->reason);
    }
    if (*facts->rails_error)
        printf("  %s\n", facts->rails_error);
}

void show_text(const struct facts *facts)
{
    show_build();
    printf("\nhost       %s\n", facts->hostname);
    if (facts->host_known)
        printf("identity   %s\n", facts->host.text);
    show_nics(facts);
    printf("\nlimits and settings\n");
    for (int i = 0; i < facts->checks.n; i++) {
        const struct check *c = &facts->checks.check[i];
        printf("  %-7s %-20s %-28s %s\n", verdict_words[c->verdict], c->name, c->value, c->text);
    }
}

void show_settings(void)
{
    const shunt_setting_t *s;
    const char *group = "", *from;

    for (unsigned i = 0; (s = shunt_setting_get(i)); i++) {
        const char *value = setting_value(s, &from);
        if (strcmp(group, s->group) != 0)
            printf("%s# %s\n", *group ? "\n" : "", s->group);
        group = s->group;
        printf("#   %s (%s)%s\n%s%s=%s\n", s->help, s->type, strcmp(from, "default") == 0 ? "" : "; set in the environment",
               strcmp(from, "default") == 0 ? "#" : "", s->name, value);
    }
}

static void json_string(const char *text)
{
    putchar('"');
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            printf("\\%c", *c);
        else if (*c < 32)
            printf("\\u%04x", *c);
        else
            putchar(*c);
    }
    putchar('"');
}

static void member(const char *name, const char *text, const char *after)
{
    json_string(name);
    printf(": ");
    json_string(text);
    printf("%s", after);
}

static void json_settings(void)
{
    const shunt_setting_t *s;
    const char *from;

    printf("\"settings\": [");
    for (unsigned i = 0; (s = shunt_setting_get(i)); i++) {
        const char *value = setting_value(s, &from);
        printf("%s\n  {", i ? "," : "");
        member("name", s->name, ", ");
        member("value", value, ", ");
        member("from", from, ", ");
        member("default", s->default_value, ", ");
        member("type", s->type, ", ");
        member("group", s->group, ", ");
        member("help", s->help, "}");
    }
    printf("]");
}

static void json_nic(const shunt_topo_rail_t *r)
{
    printf("{");
    member("name", r->name, ", ");
    member("use", rail_word(r), ", ");
    if (r->nic) {
        member("state", shunt_topo_nic_state_name(r->nic->state), ", ");
        member("layer", shunt_topo_link_layer_name(r->nic->layer), ", ");
        member("rdma", r->nic->rdma ? r->nic->rdma : "", ", ");
        member("driver", r->nic->driver, ", ");
        if (r->nic->rate_known)
            printf("\"rate\": %llu, ", (unsigned long long)r->nic->rate);
        else
            printf("\"rate\": null, ");
        printf("\"virtual\": %s, \"mtu\": %u, \"addresses\": [", r->nic->is_virtual ? "true" : "false", r->nic->mtu);
        for (unsigned i = 0; i < r->nic->n_addresses; i++) {
            char ip[INET6_ADDRSTRLEN] = "";
            inet_ntop(r->nic->addresses[i].family, r->nic->addresses[i].bytes, ip, sizeof(ip));
            printf("%s\"%s/%u\"", i ? ", " : "", ip, r->nic->addresses[i].prefix);
        }
        printf("], ");
    }
    member("reason", r->reason, "}");
}

void show_json(const struct facts *facts)
{
    const shunt_feature_t *f;

    printf("{");
    member("version", shunt_version(), ", ");
    member("build", shunt_build_text(), ",\n");
    if (facts->only_settings) {
        json_settings();
        printf("}\n");
        return;
    }
    printf("\"features\": [");
    for (unsigned i = 0; (f = shunt_feature_get(i)); i++) {
        printf("%s\n  {", i ? "," : "");
        member("name", f->name, ", ");
        printf("\"rail\": %s, \"built\": %s, ", f->is_rail ? "true" : "false", f->built ? "true" : "false");
        member("what", f->what, "}");
    }
    printf("],\n");
    member("host", facts->hostname, ", ");
    member("identity", facts->host_known ? facts->host.text : "", ",\n");
    member("decided_by", facts->rails ? facts->rails->decided_by : "", ", ");
    member("error", facts->rails_error, ",\n\"nics\": [");
    for (unsigned i = 0; facts->rails && i < facts->rails->n; i++) {
        printf("%s\n  ", i ? "," : "");
        json_nic(&facts->rails->rail[i]);
    }
    printf("],\n\"checks\": [");
    for (int i = 0; i < facts->checks.n; i++) {
        const struct check *c = &facts->checks.check[i];
        printf("%s\n  {", i ? "," : "");
        member("name", c->name, ", ");
        member("verdict", verdict_words[c->verdict], ", ");
        member("value", c->value, ", ");
        member("text", c->text, "}");
    }
    printf("],\n");
    json_settings();
    printf("}\n");
}
