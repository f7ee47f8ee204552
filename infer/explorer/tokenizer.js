// Text to subwords and back, exactly as sentencepiece does it: its normalisation table, its merges, its bytes.

const PAD = 0, BOS = 1, EOS = 2, UNK = 3;
const SPACE = "▁"; // begins a word, in the vocabulary
const BYTES_OF = new TextEncoder();
const TEXT_OF = new TextDecoder("utf-8", { ignoreBOM: true });

async function inflated(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Without scores a vocabulary is one of whole words; `charsmap` is sentencepiece's compiled normalisation.
async function makeTokenizer({ pieces, scores, charsmap }) {
  const normalised = charsmap ? openCharsmap(await inflated(charsmap)) : text => text;
  const idOf = new Map(pieces.map((piece, id) => [piece, id]));
  const isByte = id => /^<0x..>$/.test(pieces[id]);

  function prepared(text) {
    const clean = text.replace(/\p{Surrogate}/gu, "?"); // half a pair is no character
    const inner = normalised(clean).replace(/^ +/, "").replace(/ +/g, SPACE);
    return (SPACE + inner).replace(/▁+$/, "");
  }

  // The pair of the best score is merged, again and again, of equal ones the first.
  function merged(word) {
    const parts = [...word];
    const idOfPart = part => isByte(idOf.get(part)) ? undefined : idOf.get(part);
    const score = (part, place) => scores[idOfPart(part + (parts[place + 1] ?? "\n"))] ?? -Infinity;
    for (;;) {
      const [[best, value]] = largest(parts.map(score), 1);
      if (value === -Infinity) break;
      parts.splice(best, 2, parts[best] + parts[best + 1]);
    }
    // A character outside the vocabulary is spelled in bytes.
    const hex = byte => byte.toString(16).toUpperCase().padStart(2, "0");
    const bytes = part => Array.from(BYTES_OF.encode(part), byte => idOf.get(`<0x${hex(byte)}>`));
    return parts.flatMap(part => idOfPart(part) ?? bytes(part));
  }

  function encode(text) {
    if (!scores.length) {
      const words = text.split(/\s+/).filter(Boolean);
      return words.map(word => idOf.get(SPACE + word) ?? UNK);
    }
    return (prepared(text).match(/▁?[^▁]+|▁/g) ?? []).flatMap(merged);
  }

  // A byte is half a pair of surrogates until all are there.
  const written = id => isByte(id) ? String.fromCharCode(0xdc00 + parseInt(pieces[id].slice(3, 5), 16)) : pieces[id];

  function decode(ids) {
    const end = ids.indexOf(EOS);
    const own = ids.slice(0, end < 0 ? ids.length : end).filter(id => id > UNK);
    const text = own.map(written).join("").replace(/^▁+/, "").replaceAll(SPACE, " ");
    const spelled = run => TEXT_OF.decode(Uint8Array.from(run, half => half.charCodeAt(0)));
    return text.replace(/[\uDC00-\uDCFF]+/gu, spelled).replace(/[\n\r]/g, " ");
  }

  const label = id => pieces[id].replace(SPACE, "\u2009"); // a thin space
  return { pieces, encode, decode, label };
}

// The table is a trie (Darts) and the new texts.
function openCharsmap(blob) {
  const [size] = new Uint32Array(blob.buffer, 0, 1);
  const units = new Uint32Array(blob.buffer, 4, size / 4);
  const texts = blob.subarray(4 + size);
  const offset = unit => (unit >>> 10) << ((unit & 512) >>> 6);

  /* Returns the length of the longest key that begins at a byte, and where its new text begins. */
  function longestKey(bytes, at) {
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
      const [length, start] = longestKey(bytes, at);
      for (let i = start; length && texts[i]; i++) out.push(texts[i]);
      at += length;
      if (length) continue;
      do out.push(bytes[at++]); while ((bytes[at] & 0xc0) === 0x80); // one character as it is
    }
    return TEXT_OF.decode(Uint8Array.from(out));
  };
}
