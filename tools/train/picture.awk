# SPDX-License-Identifier: BSD-3-Clause
# Draws the iteration times of three runs as SVG: awk -v title=TEXT -f picture.awk INJECTED CLEAN.json FAULTS.json FIXED.json
# INJECTED has a line per fault: time, step, text and what to look for, separated by tabs.
BEGIN {
    width = 960; height = 420; left = 70; right = 20; top = 126; bottom = 50
    color[2] = "#1f77b4"; color[3] = "#d62728"; color[4] = "#7f7f7f"
    name[2] = "clean"; name[3] = "faults"; name[4] = "faults, fixed schedule"
}
FNR == 1 { file++ }
file == 1 { split($0, field, "\t"); fault[++faults] = field[3]; fault_step[faults] = field[2]; next }
match($0, /"step": [0-9]+/) {
    step = substr($0, RSTART + 8, RLENGTH - 8) + 0
    match($0, /"time_ms": [0-9.]+/)
    ms = substr($0, RSTART + 11, RLENGTH - 11) + 0
    time[file, step] = ms
    if (step > last) last = step
    if (ms > longest) longest = ms
}
function x(step) { return left + (width - left - right) * (step - 1) / (last > 1 ? last - 1 : 1) }
function y(ms) { return height - bottom - (height - top - bottom) * ms / longest }
function escaped(text) { gsub(/&/, "\\&amp;", text); gsub(/</, "\\&lt;", text); return text }
END {
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"13\">\n", width, height
    printf "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n", width, height
    printf "<text x=\"%d\" y=\"24\" font-size=\"17\">%s</text>\n", left, escaped(title)
    longest *= 1.05
    unit = 10 ^ int(log(longest) / log(10))
    if (longest / unit < 3) unit /= 4
    for (ms = 0; ms <= longest; ms += unit) {
        printf "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", left, width - right, y(ms), y(ms)
        printf "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g ms</text>\n", left - 8, y(ms) + 4, ms
    }
    for (i = 1; i <= faults; i++) {
        at = x(fault_step[i] + 0.5)
        printf "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"#888\" stroke-dasharray=\"4 3\"/>\n", at, at, 30 + 16 * i, height - bottom
        before = at > width * 0.74 # which side of its line the text has room on
        printf "<text x=\"%.1f\" y=\"%d\" fill=\"#444\" text-anchor=\"%s\">%s</text>\n", at + (before ? -4 : 4), 40 + 16 * i, (before ? "end" : "start"), escaped(fault[i])
    }
    for (run = 2; run <= 4; run++) {
        printf "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\" points=\"", color[run]
        for (step = 1; step <= last; step++)
            if ((run, step) in time)
                printf "%.1f,%.1f ", x(step), y(time[run, step])
        printf "\"/>\n<text x=\"%d\" y=\"24\" fill=\"%s\">%s</text>\n", width - 320 + 70 * (run - 2), color[run], name[run]
    }
    for (step = 0; step <= last; step += 10)
        if (step > 0)
            printf "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n", x(step), height - bottom + 18, step
    printf "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n</svg>\n", (left + width - right) / 2, height - 10
}
