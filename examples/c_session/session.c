/* Runs recurrent layers from C: without Python, without TensorFlow.
 *
 *   PACKAGE=$(python -c "import tf_blockrnn; print(tf_blockrnn.__path__[0])")
 *   python write_weights.py model.npz weights.bin
 *   cc -O2 session.c -I$PACKAGE/include -L$PACKAGE -lblockrnn_inference \
 *       -Wl,-rpath,$PACKAGE -o session
 *   ./session weights.bin 100
 *
 * It prints what the layers compute of a sequence of that many steps, whose
 * input is x[t, i] = 0.25 * ((t + i) % 7 - 3), and how long a call takes. */

#define _POSIX_C_SOURCE 199309L

#include <blockrnn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kCalls = 50 };

static void Fail(const char* what, const char* why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static void Check(const char* what, blockrnn_status status) {
  if (status != BLOCKRNN_OK) Fail(what, blockrnn_last_error());
}

static void* Allocate(size_t count, size_t size) {
  void* const memory = calloc(count > 0 ? count : 1, size);
  if (memory == NULL) Fail("allocation", "out of memory");
  return memory;
}

static void Read(FILE* file, void* to, size_t size, size_t count) {
  if (fread(to, size, count, file) != count) {
    Fail("weights", "the file ends too early");
  }
}

static int64_t ReadNumber(FILE* file, int64_t most) {
  int64_t number = 0;
  Read(file, &number, sizeof number, 1);
  if (number < 0 || number > most) Fail("weights", "the file is corrupt");
  return number;
}

/* NULL where there is no such array. The memory is freed with the process. */
static const float* ReadArray(FILE* file) {
  const int64_t count = ReadNumber(file, INT64_C(1) << 32);
  if (count == 0) return NULL;
  float* const array = Allocate((size_t)count, sizeof *array);
  Read(file, array, sizeof *array, (size_t)count);
  return array;
}

static blockrnn_direction* ReadDirection(FILE* file) {
  blockrnn_direction* const direction = Allocate(1, sizeof *direction);
  *direction = (blockrnn_direction)BLOCKRNN_DIRECTION_INIT;
  direction->w_x = ReadArray(file);
  direction->w_h = ReadArray(file);
  direction->b_x = ReadArray(file);
  direction->b_h = ReadArray(file);
  direction->peepholes = ReadArray(file);
  direction->w_p = ReadArray(file);
  direction->norm_x = ReadArray(file);
  direction->norm_h = ReadArray(file);
  direction->norm_c = ReadArray(file);
  return direction;
}

static blockrnn_model ReadModel(const char* path, int64_t* outputs) {
  FILE* const file = fopen(path, "rb");
  if (file == NULL) Fail(path, "cannot be opened");
  blockrnn_model model = BLOCKRNN_MODEL_INIT;
  model.cell = (blockrnn_cell)ReadNumber(file, BLOCKRNN_LAYER_NORM_GRU);
  model.num_layers = ReadNumber(file, 1000);
  Read(file, &model.cell_clip, sizeof model.cell_clip, 1);
  Read(file, &model.zoneout_h, sizeof model.zoneout_h, 1);
  Read(file, &model.zoneout_c, sizeof model.zoneout_c, 1);
  Read(file, &model.epsilon, sizeof model.epsilon, 1);
  model.norm_output_only = (int32_t)ReadNumber(file, 1);
  model.activation = (blockrnn_activation)ReadNumber(file, BLOCKRNN_RELU);
  Read(file, &model.hard_sigmoid, sizeof model.hard_sigmoid, 1);
  blockrnn_layer* const layers =
      Allocate((size_t)model.num_layers, sizeof *layers);
  for (int64_t n = 0; n < model.num_layers; ++n) {
    layers[n] = (blockrnn_layer)BLOCKRNN_LAYER_INIT;
    layers[n].inputs = ReadNumber(file, 1 << 20);
    layers[n].units = ReadNumber(file, 1 << 20);
    layers[n].outputs = ReadNumber(file, 1 << 20);
    const int64_t directions = ReadNumber(file, 2);
    layers[n].forward = ReadDirection(file);
    layers[n].backward = directions == 2 ? ReadDirection(file) : NULL;
    *outputs = directions * layers[n].outputs;
  }
  model.layers = layers;
  fclose(file);
  return model;
}

static double Microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

int main(int count, char** arguments) {
  if (count != 3) Fail("usage", "session WEIGHTS STEPS");
  const int64_t steps = atoll(arguments[2]);
  if (steps < 1 || steps > 1000000) Fail("STEPS", "must be in 1..1000000");
  int64_t outputs = 0;
  const blockrnn_model model = ReadModel(arguments[1], &outputs);

  blockrnn_session* session = NULL;
  Check("create",
        blockrnn_session_create(&model, BLOCKRNN_FLOAT32, 1, &session));
  const int64_t inputs = model.layers[0].inputs;
  float* const x = Allocate((size_t)(steps * inputs), sizeof *x);
  float* const y = Allocate((size_t)(steps * outputs), sizeof *y);
  for (int64_t t = 0; t < steps; ++t) {
    for (int64_t i = 0; i < inputs; ++i) {
      x[t * inputs + i] = 0.25f * (float)((t + i) % 7 - 3);
    }
  }

  double best = 0.0;
  for (int call = 0; call < kCalls; ++call) {
    const double start = Microseconds();
    Check("run",
          blockrnn_session_run(session, x, 1, steps, NULL, NULL, NULL, y));
    const double took = Microseconds() - start;
    if (call == 0 || took < best) best = took;
  }
  /* %.9g gives the exact float32 back when it is read. */
  printf("last outputs:");
  for (int64_t j = 0; j < outputs; ++j) {
    printf(" %.9g", (double)y[(steps - 1) * outputs + j]);
  }
  printf("\n%s: %lld steps in %.1f us\n", blockrnn_cpu_isa(), (long long)steps,
         best);
  blockrnn_session_destroy(session);
  return 0;
}
