// Text to subwords and back, exactly as sentencepiece does it for the run: its own normalisation table and its merges.

const PAD = 0, BOS = 1, EOS = 2, UNK = 3;
const SPACE = "▁"; // begins a word, in the vocabulary
const BYTES_OF = new TextEncoder();
const STRICT = new TextDecoder("utf-8", { fatal: true });

/* Returns the bytes of a base64 text. */
function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/* Makes the tokenizer of a page. Of two vocabularies, the source's ids begin after the target's, but for special ones. */
function openTokenizer({ source, target, source_end }) {
  const written = makeTokenizer(target);
  if (!source) return { ...written, sourceEnd: source_end, fromSource: id => id, toSource: id => id };
  const read = makeTokenizer(source);
  const offset = target.pieces.length;
  const toSource = id => id > UNK ? id + offset : id; // as the page has an id of the source
  const fromSource = id => id >= offset ? id - offset : id;
  const isRead = ids => ids.some(id => id >= offset);
  return {
    pieces: [...written.pieces, ...read.pieces],
    kinds: [...written.kinds, ...read.kinds],
    sourceEnd: source_end,
    fromSource,
    toSource,
    encode: text => read.encode(text).map(toSource),
    decode: ids => isRead(ids) ? read.decode(ids.map(fromSource)) : written.decode(ids),
    normalise: read.normalise,
    label: id => id >= offset ? read.label(id - offset) : written.label(id),
  };
}

/* Makes {pieces, encode(text) -> ids, decode(ids) -> text, normalise(text), label(id)}.

`data` has pieces, scores, kinds ("normal", "byte", "word", "special") and charsmap, sentencepiece's compiled
normalisation. */
function makeTokenizer(data) {
  const normalised = data.charsmap ? charsmap(bytesOf(data.charsmap)) : null;
  const idOf = new Map(data.pieces.map((piece, id) => [piece, id]));
  const isMerge = data.kinds.map(kind => kind === "normal");
  const words = new Map(); // of words seen before, their ids

  /* Returns the text with ▁ for spaces and one before each word: what is merged. */
  function prepared(text) {
    // An unpaired surrogate is no character.
    const clean = text.replace(/[\uD800-\uDBFF][\uDC00-\uDFFF]|[\uD800-\uDFFF]/g, found => found.length > 1 ? found : "?");
    const mapped = normalised ? normalised(clean) : clean;
    const inner = mapped.replace(/^ +/, "").replace(/ +/g, SPACE);
    return (SPACE + inner).replace(/▁+$/, ""); // also of a ▁ that was typed
  }

  /* Returns the ids of one word: the pair of the best score is merged, again and again, the first of equal ones. */
  function merged(word) {
    const parts = [...word];
    const score = place => {
      const id = idOf.get(parts[place] + parts[place + 1]);
      return id !== undefined && isMerge[id] ? data.scores[id] : -Infinity;
    };
    const scores = parts.slice(1).map((_, place) => score(place));
    for (;;) {
      let best = -1;
      for (let place = 0; place < scores.length; place++) {
        if (scores[place] > (best < 0 ? -Infinity : scores[best])) best = place;
      }
      if (best < 0) break;
      parts.splice(best, 2, parts[best] + parts[best + 1]);
      scores.splice(best, 1);
      if (best > 0) scores[best - 1] = score(best - 1);
      if (best < scores.length) scores[best] = score(best);
    }
    return parts.flatMap(part => {
      const id = idOf.get(part);
      if (id !== undefined && isMerge[id]) return [id];
      // A character outside the vocabulary is spelled in bytes.
      return [...BYTES_OF.encode(part)].map(byte => idOf.get(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`));
    });
  }

  function encode(text) {
    if (data.kinds.at(-1) === "word") {
      return text.split(/\s+/).filter(Boolean).map(word => idOf.get(SPACE + word) ?? UNK);
    }
    const ids = [];
    for (const [word] of prepared(text).matchAll(/▁?[^▁]+|▁/g)) {
      if (!words.has(word)) words.set(word, merged(word));
      ids.push(...words.get(word));
    }
    return ids;
  }

  function decode(ids) {
    let text = "";
    let bytes = [];
    const flush = () => { text += spelled(bytes); bytes = []; };
    for (const id of ids) {
      if (id === EOS) break;
      if (id <= UNK) continue;
      const piece = data.pieces[id];
      if (data.kinds[id] === "byte") { bytes.push(parseInt(piece.slice(3, 5), 16)); continue; }
      flush();
      text += (text === "" && piece.startsWith(SPACE) ? piece.slice(1) : piece).replaceAll(SPACE, " ");
    }
    flush();
    return text.replace(/[\n\r]/g, " ");
  }

  /* Returns a piece as a reader should see it: a thin space where a word starts. */
  const label = id => data.pieces[id] === SPACE ? "␣" : data.pieces[id].replace(SPACE, "\u2009");
  const normalise = text => prepared(text).replaceAll(SPACE, " ").replace(/^ +| +$/g, "").replace(/[\n\r]/g, " ");
  return { pieces: data.pieces, kinds: data.kinds, encode, decode, normalise, label };
}

/* Returns the text that bytes spell; each byte that is part of no character is U+FFFD. */
function spelled(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length;) {
    let size = 0;
    for (let tried = 1; tried <= 4 && !size && at + tried <= bytes.length; tried++) {
      try {
        text += STRICT.decode(Uint8Array.from(bytes.slice(at, at + tried)));
        size = tried;
      } catch { /* not a character yet */ }
    }
    if (!size) text += "\uFFFD";
    at += size || 1;
  }
  return text;
}

/* Returns the function that normalises a text by sentencepiece's compiled table: a trie (Darts) and the new texts. */
function charsmap(blob) {
  const size = new Uint32Array(blob.buffer, 0, 1)[0];
  const units = new Uint32Array(blob.buffer, 4, size / 4);
  const texts = blob.subarray(4 + size);
  const offset = unit => (unit >>> 10) << ((unit & 512) >>> 6);

  /* Returns the length of the longest key that begins at `at`, and where its new text begins. */
  function longest(bytes, at) {
    let found = [0, 0];
    let node = offset(units[0]);
    for (let i = at; i < bytes.length; i++) {
      node ^= bytes[i];
      const unit = units[node];
      if (unit === undefined || (unit & 0x800000ff) !== bytes[i]) break;
      node ^= offset(unit);
      if (unit & 256) found = [i + 1 - at, units[node] & 0x7fffffff];
    }
    return found;
  }

  return text => {
    const bytes = BYTES_OF.encode(text);
    const out = [];
    for (let at = 0; at < bytes.length;) {
      const [length, start] = longest(bytes, at);
      if (length) {
        for (let i = start; texts[i]; i++) out.push(texts[i]);
        at += length;
        continue;
      }
      do out.push(bytes[at++]); while ((bytes[at] & 0xc0) === 0x80); // one character as it is
    }
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(out));
  };
}
