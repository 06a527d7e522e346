// What @anthropic-ai/sdk makes of streams: each is a list of pieces in base64, in a file of JSON.
import { readFileSync } from 'node:fs';
import Anthropic from '@anthropic-ai/sdk';

const streams = JSON.parse(readFileSync(process.argv[2], 'utf-8'));
const found = [];
for (const pieces of streams) {
  const body = new ReadableStream({
    start(controller) {
      for (const piece of pieces) controller.enqueue(new Uint8Array(Buffer.from(piece, 'base64')));
      controller.close();
    },
  });
  const headers = { 'content-type': 'text/event-stream' };
  const client = new Anthropic({
    apiKey: 'none',
    maxRetries: 0,
    fetch: async () => new Response(body, { headers }),
  });
  const messages = [{ role: 'user', content: 'Hello.' }];
  try {
    const stream = client.messages.stream({ model: 'm', max_tokens: 9, messages });
    found.push({ value: await stream.finalMessage() });
  } catch (error) {
    found.push({ error: String(error) });
  }
}
process.stdout.write(JSON.stringify(found));
