// @mastra/core as its users use it, with its own router of models. Each turn asks for a model of
// its own name.
import { Agent } from '@mastra/core/agent';
import { createTool } from '@mastra/core/tools';
import { z } from 'zod';

import { all, baseURL, tell, turn } from './report.mjs';

const weather = createTool({
  id: 'weather',
  description: 'The weather in a city.',
  inputSchema: z.object({ city: z.string() }),
  outputSchema: z.string(),
  execute: async ({ city }) => `sun in ${city}`,
});

/** Return an agent on a model that the router reaches at an address of one's own. */
function make(model) {
  return new Agent({
    id: 'helper',
    name: 'helper',
    instructions: 'Be short.',
    model: { id: `antiphon/${model}`, url: baseURL, apiKey: 'none' },
    tools: { weather },
    maxRetries: 0,
  });
}

await turn('text', async (model) => (await make(model).generate('Say hello.')).text);

await turn('tool-loop', async (model) => {
  const answer = await make(model).generate('The weather in Rome and in Oslo?');
  return { text: answer.text, id: answer.response.id };
});

await turn('chat-streamed', async (model) => {
  const answer = await make(model).stream('The weather in Rome and in Oslo?');
  const pieces = await all(answer.textStream);
  return { pieces, id: (await answer.response).id };
});

await turn('cut-off', async (model) => {
  const answer = await make(model).stream('Say hello.');
  await all(answer.textStream);
  return String(answer.error);
});

tell();
