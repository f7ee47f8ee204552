// The Transformer of a run, every number of it; node runs it, too (tests/infer/explorer.py). A trace has
// activations by the names of docs/inside.md, and "scores" before the softmax: a row a position. Options change the model:
// scale, mask, positions: false, and out: {"encoder/layer_0/self_attention": [2]} without heads; or the search.

async function openModel(data) {
  const bytes = await inflated(data.numbers);
  const tensors = {};
  let read = 0;
  for (const [name, size] of Object.entries(data.tensors)) {
    tensors[name] = new Float32Array(size);
    for (let i = 0; i < size; i++, read++) tensors[name][i] = numberOf(bytes[bytes.length / 2 + read] << 8 | bytes[read]);
  }
  const target = await makeTokenizer(data.tokenizer.target);
  const source = data.tokenizer.source ? await makeTokenizer(data.tokenizer.source) : target;
  return { ...data, tensors, source, target };
}

// 16 bits: a sign, five of exponent, ten of fraction.
function numberOf(bits) {
  const exponent = bits >> 10 & 31;
  const fraction = bits & 1023;
  return (bits >> 15 ? -1 : 1) * (exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction);
}

const total = row => row.reduce((sum, value) => sum + value, 0);
const maximum = row => row.reduce((a, b) => Math.max(a, b), -Infinity);

// x W + b; W is [in, out], whatever axes these have.
function linear({ tensors }, x, path, name) {
  const w = tensors[`${path}/w${name}`];
  const bias = tensors[`${path}/b${name}`];
  return x.map(row => {
    const width = w.length / row.length;
    const sum = bias ? Float64Array.from(bias) : new Float64Array(width);
    for (let i = 0; i < row.length; i++) {
      for (let j = 0; row[i] && j < width; j++) sum[j] += row[i] * w[i * width + j];
    }
    return Float32Array.from(sum);
  });
}

function layerNorm({ config, tensors }, x, path) {
  const scale = tensors[`${path}/scale`];
  const bias = tensors[`${path}/bias`];
  return x.map(row => {
    const mean = total(row) / row.length;
    const variance = total(row.map(value => (value - mean) ** 2)) / row.length;
    const deviation = Math.sqrt(variance + config.norm_epsilon);
    return row.map((value, i) => (value - mean) / deviation * scale[i] + bias[i]);
  });
}

function logSumExp(row) {
  const most = maximum(row);
  return most + Math.log(row.reduce((sum, value) => sum + Math.exp(value - most), 0));
}

function softmax(row) {
  const all = logSumExp(row);
  return row.map(value => Math.exp(value - all));
}

// [[index, value]] of the n largest, the largest first, of equal ones the first.
function largest(row, n) {
  const best = [];
  for (let i = 0; i < row.length; i++) {
    if (best.length === n && !(row[i] > best[n - 1][1])) continue;
    let place = best.length;
    while (place && row[i] > best[place - 1][1]) place--;
    best.splice(place, 0, [i, row[i]]);
    if (best.length > n) best.pop();
  }
  return best;
}

function kept({ trace }, name, rows) {
  trace[name] = rows;
  return rows;
}

/* PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos of the same (section 3.5). */
function sinusoids(position, d_model) {
  return Float32Array.from({ length: d_model }, (_, i) => {
    const frequency = Math.fround(10000 ** (-2 * (i >> 1) / d_model));
    const angle = Math.fround(position * frequency);
    return i % 2 ? Math.cos(angle) : Math.sin(angle);
  });
}

function embedded({ config, tensors, options, first }, side, ids) {
  const { d_model, tables, scale_embeddings } = config;
  const table = tensors[tables[side === "source" ? 0 : 1]];
  const learned = tensors[`${side}_positions`];
  const rowOf = (matrix, n) => matrix.subarray(n * d_model, (n + 1) * d_model);
  const factor = scale_embeddings ? Math.sqrt(d_model) : 1;
  return ids.map((id, t) => {
    const row = rowOf(table, id).map(value => value * factor);
    if (options.positions === false) return row;
    const position = learned ? rowOf(learned, first + t) : sinusoids(first + t, d_model);
    return row.map((value, i) => value + position[i]);
  });
}

/* softmax(Q K^T / sqrt(d_k)) V of every head, and W^O. */
function attention(work, path, x, { keys, values }, causal) {
  const { h, d_k, d_v, scale_attention } = work.config;
  const { options, first } = work;
  const divisor = scale_attention && options.scale !== false ? Math.sqrt(d_k) : 1;
  const s = keys.length;
  const q = kept(work, `${path}/q`, linear(work, x, path, "q"));

  // How compatible each query is with each key; those after the query are masked (section 3.2.3).
  const scores = q.map((query, t) => Float32Array.from({ length: h * s }, (_, place) => {
    const key = keys[place % s];
    if (causal && place % s > first + t) return -Infinity;
    const start = Math.floor(place / s) * d_k;
    let sum = 0;
    for (let i = start; i < start + d_k; i++) sum += query[i] * key[i];
    return sum / divisor;
  }));
  kept(work, `${path}/scores`, scores);
  const weights = scores.map(row => {
    const result = new Float32Array(h * s);
    for (let n = 0; n < h; n++) result.set(softmax(row.subarray(n * s, (n + 1) * s)), n * s);
    return result;
  });
  kept(work, `${path}/weights`, weights);
  const heads = weights.map(row => {
    const result = new Float64Array(h * d_v);
    for (let place = 0; place < h * s; place++) {
      const n = Math.floor(place / s);
      if (options.out?.[path]?.includes(n)) continue;
      const value = values[place % s];
      for (let i = n * d_v; i < (n + 1) * d_v; i++) result[i] += row[place] * value[i];
    }
    return Float32Array.from(result);
  });
  kept(work, `${path}/heads`, heads);
  return kept(work, path, linear(work, heads, path, "o"));
}

function keysValues(work, path, x) {
  const keys = kept(work, `${path}/k`, linear(work, x, path, "k"));
  const values = kept(work, `${path}/v`, linear(work, x, path, "v"));
  return { keys, values };
}

/* FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (section 3.3). */
function feedForward(work, path, x) {
  const inner = linear(work, x, path, "1").map(row => row.map(value => Math.max(0, value)));
  const hidden = kept(work, `${path}/hidden`, inner);
  return kept(work, path, linear(work, hidden, path, "2"));
}

// `memory` is what cross-attention reads, `past` the cache.
function stack(work, name, x, memory, past = []) {
  const { N, norm } = work.config;
  const causal = name === "decoder" && work.options.mask !== false;
  const normed = (rows, path) => kept(work, path, layerNorm(work, rows, path));
  x = kept(work, `${name}/embedding`, x);
  const cache = [];
  for (let n = 0; n < N; n++) {
    const path = `${name}/layer_${n}`;
    const self = input => {
      const own = keysValues(work, `${path}/self_attention`, input);
      const { keys, values } = past[n] ?? { keys: [], values: [] };
      cache[n] = { keys: [...keys, ...own.keys], values: [...values, ...own.values] };
      return attention(work, `${path}/self_attention`, input, cache[n], causal);
    };
    const cross = input => attention(work, `${path}/cross_attention`, input, memory[n], false);
    const sublayers = [self, ...memory ? [cross] : [], input => feedForward(work, `${path}/feed_forward`, input)];
    // "LayerNorm(x + Sublayer(x))"; with pre-norm x + Sublayer(LayerNorm(x)).
    sublayers.forEach((sublayer, i) => {
      const place = `${path}/norm_${i + 1}`;
      const added = sublayer(norm === "pre" ? normed(x, place) : x);
      x = x.map((row, t) => row.map((value, j) => value + added[t][j]));
      if (norm !== "pre") x = normed(x, place);
    });
    x = kept(work, path, x);
  }
  if (norm === "pre") x = normed(x, `${name}/final_norm`);
  return { x: kept(work, name, x), cache };
}

function logitsOf({ config, tensors }, x) {
  const { d_model, scale_logits, tables } = config;
  const table = tensors[tables[2]];
  const factor = scale_logits ? d_model ** -0.5 : 1;
  return x.map(row => Float32Array.from({ length: table.length / d_model }, (_, id) => {
    let sum = 0;
    for (let i = 0; i < d_model; i++) sum += row[i] * table[id * d_model + i];
    return sum * factor + (tensors.output_bias?.[id] ?? 0);
  }));
}

const sourceIds = (model, text) => [...model.source.encode(text), ...model.tokenizer.source_end];

function encode(model, ids, options = {}) {
  const work = { ...model, options, first: 0, trace: {} };
  const { x } = stack(work, "encoder", embedded(work, "source", ids));
  const layers = Array.from({ length: model.config.N }, (_, n) => `decoder/layer_${n}/cross_attention`);
  return { memory: layers.map(path => keysValues(work, path, x)), trace: work.trace };
}

// Reads what follows the cached positions; without the mask each new word changes all before it.
function decode(model, { memory }, inputs, options = {}, cache = []) {
  const past = options.mask === false ? [] : cache;
  const first = past[0]?.keys.length ?? 0;
  const work = { ...model, options, first, trace: {} };
  const done = stack(work, "decoder", embedded(work, "target", inputs.slice(first)), memory, past);
  const logits = kept(work, "logits", logitsOf(model, done.x));
  return { logits, trace: work.trace, cache: done.cache };
}

function forward(model, ids, inputs, options) {
  const source = encode(model, ids, options);
  return { ...source.trace, ...decode(model, source, inputs, options).trace };
}

/* Returns the logits of a layer of the decoder, if it were the last. */
function logitLens(model, rows) {
  const isPre = model.config.norm === "pre";
  return logitsOf(model, isPre ? layerNorm(model, rows, "decoder/final_norm") : rows);
}

// Beam search, as search/beam.py defines it; beam_tree.js draws its nodes.
function* search(model, ids, options = {}) {
  const { beam, alpha, extra_length, stopping, length_penalty, nbest } = { nbest: 1, ...model.decoding, ...options };
  const source = encode(model, ids, options);
  const positions = model.tensors.target_positions?.length / model.config.d_model || Infinity;
  const limit = Math.min(Math.max(1, ids.length + extra_length), positions);
  const penalty = length => length_penalty === "power" ? length ** alpha : ((5 + length) / 6) ** alpha;
  const count = beam === 1 ? 1 : 2 * beam;
  const steps = [];
  let alive = [{ ids: [], log_prob: 0, place: -1 }];
  let finished = [];
  for (let length = 1; alive.length && length <= limit; length++) {
    const isAllowed = id => id !== PAD && id !== BOS && (length < limit || id === EOS);
    const extensions = alive.flatMap(parent => {
      const { logits, cache } = decode(model, source, [BOS, ...parent.ids], options, parent.cache);
      const row = logits.at(-1);
      const all = logSumExp(row);
      const best = largest(row.map((logit, id) => isAllowed(id) ? logit : -Infinity), count);
      return best.filter(([, logit]) => logit > -Infinity).map(([id, logit]) => ({
        ids: [...parent.ids, id], token: model.target.label(id), cache, parent: parent.place,
        log_prob: parent.log_prob + logit - all, score: null, rank: 0, isEnd: id === EOS,
      }));
    });
    const nodes = extensions.sort((a, b) => b.log_prob - a.log_prob).slice(0, count);
    nodes.forEach((node, place) => Object.assign(node, { place, text: model.target.decode(node.ids) }));

    const ended = nodes.filter(node => node.isEnd && (stopping !== "full" || node.place < beam));
    for (const node of ended) node.score = node.log_prob / penalty(length);
    finished = [...finished, ...ended].sort((a, b) => b.score - a.score).slice(0, beam);
    alive = nodes.filter(node => !node.isEnd).slice(0, beam);
    // A search ends once none alive could still enter the best; or, stopping fully, with as many as the beam holds.
    const goesOn = stopping === "full" ? finished.length < beam
      : alive[0]?.log_prob / penalty(limit) > (finished[nbest - 1]?.score ?? -Infinity);
    for (const node of nodes) node.state = ended.includes(node) ? "finished" : "pruned";
    for (const node of alive) node.state = goesOn ? "kept" : "abandoned";
    if (!goesOn) alive = [];
    steps.push(nodes);
    const hypotheses = finished.slice(0, nbest);
    if (!alive.length) hypotheses.forEach((node, place) => { node.rank = place + 1; });
    yield { steps, alive, hypotheses };
  }
}

const translate = (model, ids, options) => [...search(model, ids, options)].at(-1).hypotheses;
