// SPDX-License-Identifier: BSD-3-Clause
// Gloo's allreduce over its tcp transport, timed as shunt-perf times Shunt.
// usage: gloo RANK SIZE STORE-FOLDER ALGORITHM MINBYTES MAXBYTES FACTOR ITERS WARMUP; rank 0 prints "size microseconds".
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/barrier.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

static double now()
{
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int main(int argc, char **argv)
{
    if (argc != 10)
        return 2;
    int rank = atoi(argv[1]), size = atoi(argv[2]);
    std::string algorithm = argv[4];
    size_t min = strtoull(argv[5], nullptr, 10), max = strtoull(argv[6], nullptr, 10), factor = strtoull(argv[7], nullptr, 10);
    int iters = atoi(argv[8]), warmup = atoi(argv[9]);
    gloo::transport::tcp::attr attr;
    attr.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(attr);
    gloo::rendezvous::FileStore store(argv[3]);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    context->connectFullMesh(store, device);
    for (size_t bytes = min; bytes <= max; bytes *= factor) {
        size_t count = bytes / sizeof(float);
        std::vector<float> in(count, 0), out(count, 0);
        std::vector<float *> pointers{out.data()};
        std::unique_ptr<gloo::AllreduceHalvingDoubling<float>> halving;
        gloo::AllreduceOptions options(context);
        options.setInput(in.data(), count);
        options.setOutput(out.data(), count);
        options.setReduceFunction(static_cast<void (*)(void *, const void *, const void *, size_t)>(&gloo::sum<float>));
        if (algorithm == "halving")
            halving.reset(new gloo::AllreduceHalvingDoubling<float>(context, pointers, (int)count));
        double start = 0;
        for (int i = -warmup; i < iters; i++) {
            if (i == 0) {
                gloo::BarrierOptions barrier(context);
                gloo::barrier(barrier);
                start = now();
            }
            if (halving)
                halving->run();
            else
                gloo::allreduce(options);
        }
        if (rank == 0) {
            printf("%zu %.4f\n", bytes, (now() - start) / iters);
            fflush(stdout);
        }
    }
    return 0;
}
