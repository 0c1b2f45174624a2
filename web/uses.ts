// Another program uses the types of the package: `npm run package` compiles this and refuses types that allow the misuse.
import {type Deployment, readRound, readNewest, type Terms} from "croupier-client";

const deployment: Deployment = readNewest(new Uint8Array()).deployment;
const terms: Terms = readRound(undefined, deployment);
export const least: number = terms.survey.message.minBatchSize;
// @ts-expect-error: it is a number
export const misused: string = terms.survey.message.minBatchSize;
