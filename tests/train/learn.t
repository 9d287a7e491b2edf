#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
test_description='eight ranks, two stages and four replicas, learn more than a bigram table can'
. /usr/share/sharness/sharness.sh

test_expect_success 'the mean loss of the last 20 steps is below the bigram loss of the text' '
    shunt-run -t 300 -n 8 -- shunt-train --stages 2 -m 1 --blocks 2 --steps 350 --learning-rate 0.006 --log-every 50 \
        --json learnt.json >out 2>&1 || { cat out; false; } &&
    awk "/bigram_loss/ { sub(/.*\"bigram_loss\": /, \"\"); bigram = \$1 + 0 }
        /\"step\": / { sub(/.*\"loss\": /, \"\"); n++; if (n > 330) { sum += \$1 + 0; k++ } }
        END { print \"mean\", sum / k, \"bigram\", bigram; exit !(k == 20 && sum / k < bigram) }" learnt.json
'
test_done
