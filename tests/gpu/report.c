#include "report.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

int report_pipe = -1;

static void send_row(const struct row *row)
{
    if (report_pipe < 0)
        print_row(row);
    else if (write(report_pipe, row, sizeof *row) != sizeof *row)
        _exit(4); /* the parent is gone: nobody left to measure for */
}

static void put_text(char *to, size_t room, const char *from)
{
    snprintf(to, room, "%s", from);
}

void row_number(const char *name, double value, const char *unit, const char *note, ...)
{
    struct row row = {.is_number = true, .number = value};
    va_list args;
    put_text(row.name, sizeof row.name, name);
    put_text(row.unit, sizeof row.unit, unit);
    va_start(args, note);
    vsnprintf(row.note, sizeof row.note, note, args);
    va_end(args);
    send_row(&row);
}

void row_text(const char *name, const char *text, const char *note, ...)
{
    struct row row = {.is_number = false};
    va_list args;
    put_text(row.name, sizeof row.name, name);
    put_text(row.text, sizeof row.text, text);
    va_start(args, note);
    vsnprintf(row.note, sizeof row.note, note, args);
    va_end(args);
    send_row(&row);
}

void row_absent(const char *name) { row_text(name, "absent", "the library has no such symbol"); }

/* 1234567 reads better than 1.23457e+06, and 0.25 better than 0. */
static void format_number(char *to, size_t room, double value)
{
    if (!isfinite(value))
        snprintf(to, room, "0");
    else if (value == floor(value) && fabs(value) < 1e15)
        snprintf(to, room, "%.0f", value);
    else
        snprintf(to, room, fabs(value) < 10 ? "%.3f" : "%.1f", value);
}

void print_row(const struct row *row)
{
    char value[112];
    if (row->is_number)
        format_number(value, sizeof value, row->number);
    else
        put_text(value, sizeof value, row->text);
    printf("  %-42s %14s %-8s %s\n", row->name, value, row->unit, row->note);
}

void json_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (*c < 0x20)
            fprintf(out, "\\u%04x", *c);
        else
            fputc(*c, out);
    }
    fputc('"', out);
}

void json_row(FILE *out, const struct row *row, bool first)
{
    char value[64];
    fprintf(out, "%s\n      {\"name\": ", first ? "" : ",");
    json_string(out, row->name);
    fprintf(out, ", \"value\": ");
    if (row->is_number) {
        format_number(value, sizeof value, row->number);
        fputs(value, out);
    } else {
        json_string(out, row->text);
    }
    fprintf(out, ", \"unit\": ");
    json_string(out, row->unit);
    fprintf(out, ", \"note\": ");
    json_string(out, row->note);
    fputc('}', out);
}
