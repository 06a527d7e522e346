// @ts-check
// Bytes in, lines out, with a limit on the length of a line.
//
// A line that is too long is dropped while it arrives and is never held in memory; it becomes
// `null`, so that the reader can report it and go on with the next line.
'use strict';

const MAX_LINE_BYTES = 64 * 1024 * 1024;
const BREAK = 0x0a;

class LineReader {
  constructor(maxBytes = MAX_LINE_BYTES) {
    this.maxBytes = maxBytes;
    /** @type {Buffer[]} */
    this._pieces = [];
    this._length = 0;
  }

  /**
   * Return the lines that these bytes end, without their line breaks and without empty ones.
   * @param {Buffer} bytes
   */
  feed(bytes) {
    /** @type {(string | null)[]} */
    const lines = [];
    let start = 0;
    for (let end = bytes.indexOf(BREAK); end >= 0; end = bytes.indexOf(BREAK, start)) {
      this._keep(bytes.subarray(start, end));
      const line = this._take();
      if (line === null || line.trim()) lines.push(line);
      start = end + 1;
    }
    this._keep(bytes.subarray(start));
    return lines;
  }

  /** @param {Buffer} piece */
  _keep(piece) {
    this._length += piece.length;
    if (this._length > this.maxBytes) this._pieces = [];
    else if (piece.length) this._pieces.push(piece);
  }

  _take() {
    const [pieces, length] = [this._pieces, this._length];
    [this._pieces, this._length] = [[], 0];
    return length > this.maxBytes ? null : Buffer.concat(pieces).toString('utf8');
  }
}

module.exports = { LineReader, MAX_LINE_BYTES };
