/* What a section finds out: rows, written by the section's own process, read by its parent. */
#ifndef TRANCHE_PROBE_REPORT_H
#define TRANCHE_PROBE_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct row {
    bool is_number;
    double number;
    char name[72], unit[12], text[96], note[160];
};

/* Section side. A row is one write of a whole struct to the pipe, so rows survive a crash
 * right after them. Notes are printf formats. */
extern int report_pipe;
void row_number(const char *name, double value, const char *unit, const char *note, ...)
    __attribute__((format(printf, 4, 5)));
void row_text(const char *name, const char *text, const char *note, ...)
    __attribute__((format(printf, 3, 4)));

/* A symbol the driver lacks. */
void row_absent(const char *name);

/* Report side. */
void print_row(const struct row *row);
void json_string(FILE *out, const char *text);
void json_row(FILE *out, const struct row *row, bool first);

#endif
