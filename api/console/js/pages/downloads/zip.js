// Reads what lies in a zip, which every Excel book is.

const END = 0x06054b50;
const ENTRY = 0x02014b50;
const DEFLATED = 8;

/**
 * The files of a zip.
 *
 * @param {ArrayBuffer} buffer
 * @returns {Map<string, function(): Promise<string>>} their texts by name, unpacked when asked for
 */
export function unzip(buffer) {
  const view = new DataView(buffer);
  let at = buffer.byteLength - 22;
  while (at >= 0 && view.getUint32(at, true) !== END) at -= 1;
  if (at < 0) throw new Error("this is no zip file");
  const files = new Map();
  let place = view.getUint32(at + 16, true);
  for (let left = view.getUint16(at + 10, true); left > 0; left -= 1) {
    if (view.getUint32(place, true) !== ENTRY) throw new Error("the directory of this zip file is broken");
    const [name, extra, comment] = [28, 30, 32].map((offset) => view.getUint16(place + offset, true));
    const entry = { deflated: view.getUint16(place + 10, true) === DEFLATED, size: view.getUint32(place + 20, true), header: view.getUint32(place + 42, true) };
    files.set(new TextDecoder().decode(new Uint8Array(buffer, place + 46, name)), () => text(buffer, view, entry));
    place += 46 + name + extra + comment;
  }
  return files;
}

async function text(buffer, view, { deflated, size, header }) {
  const start = header + 30 + view.getUint16(header + 26, true) + view.getUint16(header + 28, true);
  const stream = new Blob([new Uint8Array(buffer, start, size)]).stream();
  return new Response(deflated ? stream.pipeThrough(new DecompressionStream("deflate-raw")) : stream).text();
}
