/* The C interface of tf_blockrnn's sessions: inference with recurrent layers
 * whose weights are fixed, without TensorFlow and Python.
 *
 * Link with libblockrnn_inference.so, which looks for the engines,
 * libblockrnn_cpu_*.so, in its own folder. examples/c_session has a program.
 *
 * B rows, T steps, I inputs, H units, P outputs of a direction (H without a
 * projection), D directions, G gates. All arrays are dense, in row-major order.
 * The equations and the order of gates are those of tf_blockrnn.weights:
 *
 *   lstm  gates i, f, c, o
 *         i, f, o = sigmoid(x w_x + h' w_h + b_x + b_h)   c likewise with tanh
 *         cs = f cs' + i c            h = o tanh(cs), or w_p (o tanh(cs))
 *         peepholes add wci cs' to i, wcf cs' to f and wco cs to o
 *   gru   gates r, u, c
 *         r, u = sigmoid(x w_x + h' w_h + b_x + b_h)
 *         c = tanh(x w_x + b_x + r (h' w_h + b_h))      reset after, or
 *         c = tanh(x w_x + b_x + (r h') w_h + b_h)      reset before the GEMM
 *         h = u h' + (1 - u) c
 *   With BLOCKRNN_RELU an lstm or gru has relu in place of each tanh, and with
 *   hard_sigmoid = a it has min(max(a v + 1/2, 0), 1) in place of sigmoid(v).
 *   Zoneout of a state s is its mean, z s' + (1 - z) s, with the rate z; the
 *   lstm's h is made of the cs before its zoneout.
 *   rnn   h = tanh(x w_x + h' w_h + b_x + b_h), or relu
 *   layer_norm_lstm  gates i, f, c, o
 *         i, f, o = sigmoid(norm_x(x w_x) + norm_h(h' w_h) + b_x + b_h)
 *         c likewise with tanh
 *         cs = norm_c(f cs' + i c)    h = o tanh(cs)
 *         or, with norm_output_only,
 *         cs = f cs' + i c            h = o tanh(norm_c(cs))
 *   layer_norm_gru  gates r, u, c
 *         r, u = sigmoid(norm_x(x w_x) + b_x + norm_h(h' w_h) + b_h)
 *         c = tanh(norm_x(x w_x) + b_x + r (norm_h(h' w_h) + b_h))
 *         h = u h' + (1 - u) c
 *   norm(s) = gamma (s - mean(s)) / sqrt(variance(s) + epsilon) + beta, whose
 *   mean and variance are over all gates of a row, norm_c's over all units.
 *
 * Functions return BLOCKRNN_OK or what is wrong; blockrnn_last_error() has the
 * text. They may be called by many threads at a time with the same session.
 *
 * Structs that a caller fills begin with struct_size, which must be their size.
 * The initialisers set it, and all other members to zero:
 *
 *   blockrnn_model model = BLOCKRNN_MODEL_INIT;           C and C++
 *   blockrnn_model model = {.struct_size = sizeof model}; C99 and C++20
 *
 * Later versions add members at the end of a struct, and there zero stands for
 * the behaviour of this version. So a program that is compiled against this
 * header runs with later libraries. One that is compiled against a later header
 * runs with this library unless it sets a member that this library does not
 * know, which is BLOCKRNN_INVALID_ARGUMENT. */

#ifndef BLOCKRNN_INFERENCE_BLOCKRNN_H_
#define BLOCKRNN_INFERENCE_BLOCKRNN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised with every function, member or value that is added. */
#define BLOCKRNN_API_VERSION 2

/* The types below are int32_t and not enums, so that every number can be passed
 * and returned: a program and a library may be of different versions. */

typedef int32_t blockrnn_status;
enum {
  BLOCKRNN_OK = 0,
  BLOCKRNN_INVALID_ARGUMENT = 1,
  BLOCKRNN_OUT_OF_MEMORY = 2,
  BLOCKRNN_NO_ENGINE = 3,  /* no engine that this processor runs */
  BLOCKRNN_NO_THREADS = 4, /* the system does not start that many threads */
  BLOCKRNN_INTERNAL = 5    /* an error of the library */
};

typedef int32_t blockrnn_cell;
enum {
  BLOCKRNN_LSTM = 0,
  BLOCKRNN_GRU_RESET_BEFORE = 1,
  BLOCKRNN_GRU_RESET_AFTER = 2,
  BLOCKRNN_RNN_TANH = 3,
  BLOCKRNN_RNN_RELU = 4,
  BLOCKRNN_LAYER_NORM_LSTM = 5,
  BLOCKRNN_LAYER_NORM_GRU = 6
};

typedef int32_t blockrnn_precision;
enum {
  BLOCKRNN_FLOAT32 = 0,
  BLOCKRNN_BFLOAT16 = 1, /* weights in bfloat16, sums in float32 */
  BLOCKRNN_INT8 = 2      /* weights and operands in int8, sums in int32: inputs,
                            units and outputs up to 133144 */
};

typedef int32_t blockrnn_activation;
enum { BLOCKRNN_TANH = 0, BLOCKRNN_RELU = 1 };

/* The weights of one direction of a layer. Those that may be NULL are zero, or
 * there is no such part. The norms, [0] gamma and [1] beta, are read for the
 * cells with layer normalisation alone, and must not be NULL there. */
typedef struct blockrnn_direction {
  size_t struct_size;     /* sizeof(blockrnn_direction) */
  const float* w_x;       /* [G, I, H] */
  const float* w_h;       /* [G, P, H] */
  const float* b_x;       /* [G, H], or NULL */
  const float* b_h;       /* [G, H], or NULL */
  const float* peepholes; /* [3, H], wci, wcf, wco; or NULL; lstm only */
  const float* w_p;       /* [P, H], or NULL, then P must be H; lstm only */
  const float* norm_x;    /* [2, G, H], of x w_x */
  const float* norm_h;    /* [2, G, H], of h' w_h */
  const float* norm_c;    /* [2, H], of the cell state; not read for a gru */
} blockrnn_direction;

#define BLOCKRNN_DIRECTION_INIT                                           \
  {                                                                       \
    sizeof(blockrnn_direction), NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
        NULL, NULL                                                        \
  }

typedef struct blockrnn_layer {
  size_t struct_size; /* sizeof(blockrnn_layer), in each layer of an array */
  int64_t inputs;     /* I: of the first layer any, else D P of the one below */
  int64_t units;      /* H */
  int64_t outputs;    /* P */
  const blockrnn_direction* forward;
  const blockrnn_direction* backward; /* NULL: one direction */
} blockrnn_layer;

#define BLOCKRNN_LAYER_INIT \
  { sizeof(blockrnn_layer), 0, 0, 0, NULL, NULL }

typedef struct blockrnn_model {
  size_t struct_size; /* sizeof(blockrnn_model) */
  blockrnn_cell cell;
  /* Both must be 0 but for lstm and gru. */
  blockrnn_activation activation; /* in place of tanh */
  float hard_sigmoid;             /* slope of the gates' hard sigmoid, as 0.2 in
                                     Keras before version 3; 0: sigmoid */
  float cell_clip;                /* of the lstm's cell state; 0: none */
  float zoneout_h;                /* rate of zoneout of h, 0..1; not of rnn */
  float zoneout_c; /* rate of zoneout of the lstm's cell state, 0..1 */
  /* Both are read for the cells with layer normalisation alone. */
  float epsilon;            /* added to the variances; above 0 */
  int32_t norm_output_only; /* lstm: not 0: the output alone reads norm_c */
  int64_t num_layers;       /* at least 1 */
  const blockrnn_layer* layers;
} blockrnn_model;

#define BLOCKRNN_MODEL_INIT                                                 \
  {                                                                         \
    sizeof(blockrnn_model), BLOCKRNN_LSTM, BLOCKRNN_TANH, 0.0f, 0.0f, 0.0f, \
        0.0f, 0.0f, 0, 0, NULL                                              \
  }

typedef struct blockrnn_session blockrnn_session;

/* Packs the weights, which are not read afterwards. threads: that a call may
 * use, its own included, 1..1024; the others are started here, and end with the
 * session. *session is NULL unless it succeeds. */
blockrnn_status blockrnn_session_create(const blockrnn_model* model,
                                        blockrnn_precision precision,
                                        int32_t threads,
                                        blockrnn_session** session);

/* No call of the session may be running. NULL is allowed. */
void blockrnn_session_destroy(blockrnn_session* session);

/* Elements that the state of one row has. The states of B rows are one array:
 * for each layer from the input up, for each of its directions: h [B, P], and
 * for an lstm, with layer normalisation or without, cs [B, H]. Of NULL: -1. */
int64_t blockrnn_session_state_size(const blockrnn_session* session);

/* Bytes of the packed weights. Of NULL: -1. */
int64_t blockrnn_session_weight_bytes(const blockrnn_session* session);

/* All steps of B sequences: outputs is D P of the last layer.
 *   x          [B, T, I]
 *   lengths    [B], each in 0..T, or NULL: all are T. Outputs past a row's
 *              length are zero, and its new state is that at its length.
 *   state      before the first step; NULL: zeros
 *   new_state  after the last step; NULL: not wanted. May be `state`.
 *   y          [B, T, outputs]
 * No other arrays may overlap. */
blockrnn_status blockrnn_session_run(blockrnn_session* session, const float* x,
                                     int64_t batch, int64_t steps,
                                     const int64_t* lengths, const float* state,
                                     float* new_state, float* y);

/* Since API version 2: the arguments of a call of
 * blockrnn_session_run_sequences, which are those of blockrnn_session_run, and
 * resets. */
typedef struct blockrnn_sequences {
  size_t struct_size; /* sizeof(blockrnn_sequences) */
  const float* x;
  int64_t batch; /* B */
  int64_t steps; /* T */
  const int64_t* lengths;
  const uint8_t* resets; /* [B, T], or NULL: none */
  const float* state;
  float* new_state;
  float* y;
} blockrnn_sequences;

#define BLOCKRNN_SEQUENCES_INIT \
  { sizeof(blockrnn_sequences), NULL, 0, 0, NULL, NULL, NULL, NULL, NULL }

/* Likewise, for rows of several sequences, one after another. Where resets is
 * not 0 at step t of a row, a new sequence begins: in either direction no state
 * passes between steps t - 1 and t. The forward direction has zeros before step
 * t, and the backward direction, which comes from step t, before step t - 1.
 *   state      of the sequence of a row that a direction does first, unless a
 *              reset at step 0 lies between the state and the forward direction
 *   new_state  of the sequence of a row that a direction does last
 * Steps past a row's length do not count, nor do their resets. */
blockrnn_status blockrnn_session_run_sequences(
    blockrnn_session* session, const blockrnn_sequences* sequences);

/* One step of B sequences, for sessions whose layers have one direction.
 *   x [B, I], y [B, outputs]; state, new_state: as above
 *   rows_apart: not 0: each row has the bits of a step of that row alone, so
 *   that it does not matter which others there are. */
blockrnn_status blockrnn_session_step(blockrnn_session* session, const float* x,
                                      int64_t batch, const float* state,
                                      float* new_state, float* y,
                                      int32_t rows_apart);

/* What the last call of this thread that failed had to report. */
const char* blockrnn_last_error(void);

/* The instruction set of the engine in use, "x86-64-v4" say; NULL: none. */
const char* blockrnn_cpu_isa(void);

/* The BLOCKRNN_API_VERSION of the library: whether it has what was added in a
 * version, for programs that also run with older libraries. */
int32_t blockrnn_api_version(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BLOCKRNN_INFERENCE_BLOCKRNN_H_ */
