/* The Transformer of a run, every number of it. No view, no document: node runs it, too (tests/infer/test_explorer.py).

For views:

  model = openModel(data)                 data of the page; openModel(data, i) is checkpoint i of data.checkpoints
  model.config                            the run's config.model, with vocab_size; names are the paper's
  model.tokenizer                         see tokenizer.js: encode, decode, label, pieces
  model.tensors["embed"]                  {shape, data}, as the parameters of the run are named

  ids = sourceIds(model, text)            subwords, and what ends a source: EOS, or nothing in some imported runs
  source = encode(model, ids, options)    {ids, x, memory, trace}: the encoder, and keys and values for the decoder
  decode(model, source, inputs, options)  {trace, logits}: the decoder reads `inputs`, BOS first, all positions at once
  forward(model, ids, inputs, options)    both, with one trace
  state = begin(model)                    before the first token; then, a token at a time, with the cache in `state`,
  next(model, source, state, token, options)        {logits, state, trace}
  search(model, ids, options)             a generator: yields after each step, returns {hypotheses, steps};
                                          options also: beam, alpha, extra_length, nbest, stopping, length_penalty
  translate(model, ids, options)          the same at once; beam 1 is greedy
  logitLens(model, trace, "decoder")      the logits after the embedding and after each layer: [layer][position]
  softmax(logits), largest(values, n)     probabilities; the n best as [[index, value]]
  shuffled(model, ids, seed)              the words of a sentence in another order

A trace has the activations by the names of docs/inside.md ("decoder/layer_0/cross_attention/q"), and "products" (q k),
"scores" (divided and masked) and "sum_1" .. (x + f(x)) besides; each is {shape, rows}: rows[position] is a Float32Array
of the other axes, and head(activation, position, h) one head's part of it.

Options change the model; all may be left out, and any function above takes them:
  scale: false                            the products are not divided by sqrt(d_k)
  mask: false                             the decoder sees what comes after (in `next` it reads all again: no cache)
  positions: false                        no sinusoids are added
  heads: {"decoder/layer_0/cross_attention": [1, 0, 1, 1]}     factors of the heads' outputs: this one is out
  patch: {"encoder/layer_0": {2: row}}    new values of an activation at a position, as infer.load_run(..).trace has it
  trace: false                            keep no activations, which is faster
*/

const MASKED = -Infinity;

// Opening a model

/* Returns {config, decoding, tokenizer, tensors, step}. */
function openModel(data, checkpoint) {
  const saved = checkpoint === undefined ? data : data.checkpoints[checkpoint];
  const tensors = {};
  for (const [name, stored] of Object.entries(saved.tensors)) {
    tensors[name] = { shape: stored.shape, data: values(stored) };
  }
  return {
    config: data.config, decoding: data.decoding, step: saved.step, tensors, tokenizer: openTokenizer(data.tokenizer),
  };
}

/* Returns the numbers of a stored array: float32, float16, or int8 with a factor for each row of its last axis. */
function values(stored) {
  if (stored.float32 !== undefined) return new Float32Array(bytesOf(stored.float32).buffer);
  if (stored.float16 !== undefined) return Float32Array.from(new Uint16Array(bytesOf(stored.float16).buffer), fromHalf);
  const whole = new Int8Array(bytesOf(stored.int8).buffer);
  const factors = new Float32Array(bytesOf(stored.factors).buffer);
  const width = stored.shape.at(-1);
  const result = new Float32Array(whole.length);
  for (let i = 0; i < whole.length; i++) result[i] = whole[i] * factors[(i / width) | 0];
  return result;
}

/* Returns the number that 16 bits stand for: a sign, five bits of exponent and ten of fraction. */
function fromHalf(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = bits >> 10 & 31;
  const fraction = bits & 1023;
  return sign * (exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction);
}

// Arithmetic on rows

/* Returns x W + b for each row; W is [in, out], whatever axes these have. */
function linear(model, x, name, biasName) {
  const { data } = model.tensors[name];
  const bias = model.tensors[biasName]?.data;
  return x.map(row => {
    const width = data.length / row.length;
    const sum = new Float64Array(width);
    for (let i = 0; i < row.length; i++) {
      const factor = row[i];
      if (factor === 0) continue;
      const first = i * width;
      for (let j = 0; j < width; j++) sum[j] += factor * data[first + j];
    }
    if (bias) for (let j = 0; j < width; j++) sum[j] += bias[j];
    return Float32Array.from(sum);
  });
}

const add = (x, y) => x.map((row, t) => row.map((value, i) => value + y[t][i]));

/* Returns each row with mean 0 and variance 1, times the scale, plus the bias. */
function layerNorm(model, x, path) {
  const scale = model.tensors[`${path}/scale`].data;
  const bias = model.tensors[`${path}/bias`].data;
  return x.map(row => {
    const mean = row.reduce((sum, value) => sum + value, 0) / row.length;
    const variance = row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / row.length;
    const deviation = Math.sqrt(variance + model.config.norm_epsilon);
    return row.map((value, i) => (value - mean) / deviation * scale[i] + bias[i]);
  });
}

/* Returns exp(x) / sum of exp(x). */
function softmax(row) {
  const most = row.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = Float64Array.from(row, value => Math.exp(value - most));
  const sum = powers.reduce((a, b) => a + b, 0);
  return Float32Array.from(powers, power => power / sum);
}

/* Returns log sum exp(x). */
function logSumExp(row) {
  const most = row.reduce((a, b) => Math.max(a, b), -Infinity);
  return most + Math.log(row.reduce((sum, value) => sum + Math.exp(value - most), 0));
}

/* Returns the n largest as [[index, value]], the largest first, of equal ones the first. */
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

// The model

/* Returns one head's part of an activation at a position. */
function head(activation, position, h) {
  const width = activation.shape[2];
  return activation.rows[position].subarray(h * width, (h + 1) * width);
}

/* Records an activation and returns it, patched if `options` say so; `first` is the position of its first row. */
function kept(work, name, rows, shape, first = 0) {
  const patch = work.options.patch?.[name];
  if (patch) rows = rows.map((row, t) => first + t in patch ? Float32Array.from(patch[first + t]) : row);
  if (work.trace) work.trace[name] = { shape: [rows.length, ...shape], rows };
  return rows;
}

/* Returns how many tokens may be written: learned positions have an end. */
function longest(model) {
  const learned = model.tensors.target_positions;
  return learned ? learned.shape[0] : Infinity;
}

/* PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos of the same (section 3.5). */
function sinusoids(position, d_model) {
  return Float32Array.from({ length: d_model }, (_, i) => {
    const frequency = Math.fround(10000 ** (-2 * (i >> 1) / d_model));
    const angle = Math.fround(position * frequency);
    return i % 2 ? Math.cos(angle) : Math.sin(angle);
  });
}

/* Returns the embeddings of tokens, with their positions, from `first` on. */
function embedded(work, side, ids, first = 0) {
  const { config, tensors, tokenizer } = work.model;
  const table = tensors[config.tables[side === "source" ? 0 : 1]].data;
  const learned = tensors[`${side}_positions`]?.data;
  const d = config.d_model;
  const factor = config.scale_embeddings ? Math.sqrt(d) : 1;
  return ids.map((id, t) => {
    const place = side === "source" ? tokenizer.fromSource(id) : id;
    const row = table.slice(place * d, (place + 1) * d).map(value => value * factor);
    if (work.options.positions === false) return row;
    const position = learned ? learned.subarray((first + t) * d, (first + t + 1) * d) : sinusoids(first + t, d);
    return row.map((value, i) => value + position[i]);
  });
}

/* softmax(Q K^T / sqrt(d_k)) V of every head, and W^O; keys and values are rows, `first` the position of x's first. */
function attention(work, path, x, { keys, values }, causal, first) {
  const { config } = work.model;
  const { h, d_k, d_v } = config;
  const divisor = config.scale_attention && work.options.scale !== false ? Math.sqrt(d_k) : 1;
  const factors = work.options.heads?.[path];
  const s = keys.length;
  const q = kept(work, `${path}/q`, linear(work.model, x, `${path}/wq`, `${path}/bq`), [h, d_k], first);

  // How compatible each query is with each key.
  let products = q.map(query => {
    const row = new Float32Array(h * s);
    for (let n = 0; n < h; n++) {
      for (let j = 0; j < s; j++) {
        let sum = 0;
        for (let i = n * d_k; i < (n + 1) * d_k; i++) sum += query[i] * keys[j][i];
        row[n * s + j] = sum;
      }
    }
    return row;
  });
  products = kept(work, `${path}/products`, products, [h, s], first);
  // Keys after the query are masked (section 3.2.3).
  let scores = products.map((row, t) =>
    row.map((product, i) => causal && i % s > first + t ? MASKED : product / divisor));
  scores = kept(work, `${path}/scores`, scores, [h, s], first);
  let weights = scores.map(row => {
    const result = new Float32Array(h * s);
    for (let n = 0; n < h; n++) result.set(softmax(row.subarray(n * s, (n + 1) * s)), n * s);
    return result;
  });
  weights = kept(work, `${path}/weights`, weights, [h, s], first);

  // The weighted sum of the values.
  let heads = weights.map(row => {
    const result = new Float64Array(h * d_v);
    for (let n = 0; n < h; n++) {
      if (factors?.[n] === 0) continue;
      for (let j = 0; j < s; j++) {
        const weight = row[n * s + j] * (factors?.[n] ?? 1);
        for (let i = n * d_v; i < (n + 1) * d_v; i++) result[i] += weight * values[j][i];
      }
    }
    return Float32Array.from(result);
  });
  heads = kept(work, `${path}/heads`, heads, [h, d_v], first);
  return kept(work, path, linear(work.model, heads, `${path}/wo`, `${path}/bo`), [config.d_model], first);
}

/* Returns the keys and values of an attention to x. */
function keysValues(work, path, x, first = 0) {
  const { h, d_k, d_v } = work.model.config;
  const keys = kept(work, `${path}/k`, linear(work.model, x, `${path}/wk`, `${path}/bk`), [h, d_k], first);
  const values = kept(work, `${path}/v`, linear(work.model, x, `${path}/wv`, `${path}/bv`), [h, d_v], first);
  return { keys, values };
}

/* FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (section 3.3). */
function feedForward(work, path, x, first) {
  const { d_ff, d_model } = work.model.config;
  const inner = linear(work.model, x, `${path}/w1`, `${path}/b1`).map(row => row.map(value => Math.max(0, value)));
  const hidden = kept(work, `${path}/hidden`, inner, [d_ff], first);
  return kept(work, path, linear(work.model, hidden, `${path}/w2`, `${path}/b2`), [d_model], first);
}

/* The N layers of the encoder or the decoder: returns {x, cache}; `past` is the cache, `memory` that of the source. */
function stack(work, name, x, { first = 0, memory, past } = {}) {
  const { config } = work.model;
  const shape = [config.d_model];
  const causal = name === "decoder" && work.options.mask !== false;
  x = kept(work, `${name}/embedding`, x, shape, first);
  const cache = [];
  for (let n = 0; n < config.N; n++) {
    const path = `${name}/layer_${n}`;
    const sublayers = [
      input => {
        const own = keysValues(work, `${path}/self_attention`, input, first);
        const earlier = past?.[n] ?? { keys: [], values: [] };
        cache[n] = { keys: [...earlier.keys, ...own.keys], values: [...earlier.values, ...own.values] };
        return attention(work, `${path}/self_attention`, input, cache[n], causal, first);
      },
      input => feedForward(work, `${path}/feed_forward`, input, first),
    ];
    if (memory) {
      sublayers.splice(1, 0, input => attention(work, `${path}/cross_attention`, input, memory[n], false, first));
    }
    // "LayerNorm(x + Sublayer(x))"; with pre-norm x + Sublayer(LayerNorm(x)).
    sublayers.forEach((sublayer, i) => {
      const norm = `${path}/norm_${i + 1}`;
      const normed = rows => kept(work, norm, layerNorm(work.model, rows, norm), shape, first);
      const sum = add(x, sublayer(config.norm === "pre" ? normed(x) : x));
      x = kept(work, `${path}/sum_${i + 1}`, sum, shape, first);
      if (config.norm !== "pre") x = normed(x);
    });
    x = kept(work, path, x, shape, first);
  }
  if (config.norm === "pre") {
    const norm = `${name}/final_norm`;
    x = kept(work, norm, layerNorm(work.model, x, norm), shape, first);
  }
  return { x: kept(work, name, x, shape, first), cache };
}

/* Returns x E^T for each row, and with a bias, that: the logits. */
function logitsOf(model, x, table, bias) {
  const { config, tensors } = model;
  const { data } = tensors[table];
  const factor = config.scale_logits ? config.d_model ** -0.5 : 1;
  return x.map(row => {
    const logits = new Float32Array(data.length / config.d_model);
    for (let id = 0; id < logits.length; id++) {
      const first = id * row.length;
      let sum = 0;
      for (let i = 0; i < row.length; i++) sum += row[i] * data[first + i];
      logits[id] = sum * factor + (bias ? bias[id] : 0);
    }
    return logits;
  });
}

/* Returns the logits of the decoder's output. */
function predicted(model, x) {
  return logitsOf(model, x, model.config.tables[2], model.tensors.output_bias?.data);
}

const working = (model, options, trace = {}) => ({ model, options, trace: options.trace === false ? null : trace });

function sourceIds(model, text) {
  return [...model.tokenizer.encode(text), ...model.tokenizer.sourceEnd];
}

function encode(model, ids, options = {}) {
  const work = working(model, options);
  const { x } = stack(work, "encoder", embedded(work, "source", ids));
  const memory = [];
  for (let n = 0; n < model.config.N; n++) memory.push(keysValues(work, `decoder/layer_${n}/cross_attention`, x));
  return { ids, x, memory, trace: work.trace };
}

function decode(model, source, inputs, options = {}) {
  const work = working(model, options);
  const { x } = stack(work, "decoder", embedded(work, "target", inputs), { memory: source.memory });
  const logits = kept(work, "logits", predicted(model, x), [model.config.vocab_size]);
  return { trace: work.trace, logits };
}

function forward(model, ids, inputs, options = {}) {
  const source = encode(model, ids, options);
  const { trace, logits } = decode(model, source, inputs, options);
  return { trace: { ...source.trace, ...trace }, logits, source };
}

function begin() {
  return { tokens: [], cache: undefined };
}

function next(model, source, state, token, options = {}) {
  const tokens = [...state.tokens, token];
  if (options.mask === false) {
    const { trace, logits } = decode(model, source, tokens, options);
    return { logits: logits.at(-1), trace, state: { tokens } };
  }
  const work = working(model, options);
  const first = state.tokens.length;
  const x = embedded(work, "target", [token], first);
  const done = stack(work, "decoder", x, { first, memory: source.memory, past: state.cache });
  const logits = predicted(model, done.x);
  return { logits: kept(work, "logits", logits, [model.config.vocab_size], first)[0],
    trace: work.trace, state: { tokens, cache: done.cache } };
}

// Search

/* Beam search, as search/beam.py defines it; nodes are those of beam_tree.js, with `ids` besides. */
function* search(model, ids, options = {}) {
  const { beam, alpha, extra_length, stopping, length_penalty } = { ...model.decoding, ...options };
  const nbest = options.nbest ?? 1;
  const quiet = { ...options, trace: false };
  const source = encode(model, ids, quiet);
  const limit = Math.min(Math.max(1, ids.length + extra_length), longest(model));
  const penalty = length => length_penalty === "power" ? length ** alpha : ((5 + length) / 6) ** alpha;
  const count = beam === 1 ? 1 : 2 * beam;
  const steps = [];
  let alive = [{ ids: [], log_prob: 0, state: begin(), token: BOS, place: -1 }];
  let finished = [];
  for (let length = 1; alive.length && length <= limit; length++) {
    // The most probable extensions of all that are alive.
    const extensions = alive.flatMap(parent => {
      const { logits, state } = next(model, source, parent.state, parent.token, quiet);
      const normaliser = logSumExp(logits);
      const allowed = logits.map((logit, id) => id === PAD || id === BOS || (length === limit && id !== EOS)
        ? -Infinity : logit);
      return largest(allowed, count).filter(([, logit]) => logit > -Infinity).map(([token, logit]) => ({
        ids: [...parent.ids, token], token, parent: parent.place, state,
        log_prob: parent.log_prob + (logit - normaliser),
      }));
    });
    const best = extensions.sort((a, b) => b.log_prob - a.log_prob).slice(0, count);

    // Those that end join the finished ones, of which as many are kept as the beam holds.
    const ended = best.filter((node, place) => node.token === EOS && (stopping !== "full" || place < beam));
    for (const node of ended) node.score = node.log_prob / penalty(length);
    finished = [...finished, ...ended].sort((a, b) => b.score - a.score).slice(0, beam);
    const rest = best.filter(node => node.token !== EOS).slice(0, beam);
    // A search ends once none alive could still enter the best; or, stopping fully, with as many as the beam holds.
    const goesOn = rest.length > 0 && (stopping === "full" ? finished.length < beam
      : rest[0].log_prob / penalty(limit) > (finished[nbest - 1]?.score ?? -Infinity));

    const nodes = best.map((node, place) => ({
      token: model.tokenizer.label(node.token), text: model.tokenizer.decode(node.ids), ids: node.ids,
      parent: node.parent, log_prob: node.log_prob, score: node.score ?? null, rank: 0,
      state: ended.includes(node) ? "finished" : !rest.includes(node) ? "pruned" : goesOn ? "kept" : "abandoned",
      place,
    }));
    ended.forEach(node => { node.node = nodes[best.indexOf(node)]; });
    steps.push(nodes);
    alive = goesOn ? rest.map(node => ({ ...node, place: best.indexOf(node) })) : [];
    yield { steps, alive };
  }
  const returned = finished.slice(0, nbest);
  returned.forEach(({ node }, place) => { node.rank = place + 1; });
  const hypotheses = returned.map(({ ids: tokens, score, log_prob }) => ({
    ids: tokens.slice(0, -1), text: model.tokenizer.decode(tokens), score, log_prob }));
  return { hypotheses, steps };
}

function translate(model, ids, options = {}) {
  const running = search(model, ids, options);
  for (;;) {
    const { done, value } = running.next();
    if (done) return value;
  }
}

// What is inside

function logitLens(model, trace, name) {
  const { config } = model;
  const layers = [...Array(config.N).keys()].map(n => `${name}/layer_${n}`);
  return [`${name}/embedding`, ...layers].map(layer => {
    const { rows } = trace[layer];
    const x = config.norm === "pre" ? layerNorm(model, rows, `${name}/final_norm`) : rows;
    return name === "decoder" ? predicted(model, x) : logitsOf(model, x, config.tables[0]);
  });
}

/* Returns the subwords with the words in another order, which a seed names; a final EOS stays. */
function shuffled(model, ids, seed = 1) {
  const words = [];
  for (const id of ids) {
    if (id === EOS) continue;
    if (!words.length || model.tokenizer.pieces[id].startsWith(SPACE)) words.push([]);
    words.at(-1).push(id);
  }
  let state = seed;
  for (let last = words.length - 1; last > 0; last--) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const other = Math.floor(state / 2 ** 32 * (last + 1));
    [words[last], words[other]] = [words[other], words[last]];
  }
  return [...words.flat(), ...(ids.at(-1) === EOS ? [EOS] : [])];
}
