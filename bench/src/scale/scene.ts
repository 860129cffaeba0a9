/**
 * One broker with a runner, an agent, and, where a measurement needs them, fleets of light runners and an agent that fills it.
 *
 * Invariant: whatever fails, `stop` ends every process that was started.
 */
import type { LoadRequest } from "../load.js";
import { type RoleProcess, startProgram, startRole } from "../processes/role-process.js";
import type { AgentRole, BrokerPlaces, BrokerRole, LedgerPlace, RunnerRole } from "../processes/roles.js";
import { type LoadSample, measureLoad } from "../stage.js";
import type { FillRole, FleetRole } from "./roles.js";

/** Processes of one broker and what they are asked. */
export class Scene {
  broker: RoleProcess<BrokerRole> = startRole<BrokerRole>("product", "broker");
  readonly agent = startRole<AgentRole>("product", "agent");
  private readonly runner = startRole<RunnerRole>("product", "runner");
  private filling: { readonly process: RoleProcess<FillRole>; readonly ready: Promise<void> } | undefined;
  private readonly fleets: RoleProcess<FleetRole>[] = [];
  private known: BrokerPlaces | undefined;

  private constructor(private readonly setup: { readonly ledger: LedgerPlace; readonly index: boolean }) {}

  /** Resolves when a call went through. */
  static async start(setup: { readonly ledger: LedgerPlace; readonly index: boolean }): Promise<Scene> {
    const scene = new Scene(setup);
    try {
      scene.known = await scene.broker.ask("start", setup);
      await scene.agent.ask("connect", scene.places);
      await scene.runner.ask("start", { transport: "websocket", places: scene.places });
      await scene.agent.ask("check");
      return scene;
    } catch (error) {
      await scene.end();
      throw error;
    }
  }

  get places(): BrokerPlaces {
    if (this.known === undefined) throw new Error("the broker was not started");
    return this.known;
  }

  /** The agent that fills the broker; started when it is first asked for. */
  async filler(): Promise<RoleProcess<FillRole>> {
    if (this.filling === undefined) {
      const process = startProgram<FillRole>("scale", "fill");
      this.filling = { process, ready: process.ask("connect", this.places) };
    }
    await this.filling.ready;
    return this.filling.process;
  }

  fleet(): RoleProcess<FleetRole> {
    const fleet = startProgram<FleetRole>("scale", "fleet");
    this.fleets.push(fleet);
    return fleet;
  }

  /** Over gRPC. */
  measure(load: LoadRequest): Promise<LoadSample> {
    return measureLoad(this.broker, this.agent, "grpc", load);
  }

  /** Kills the broker and starts another one at the same addresses over the same ledger; resolves when that one listens. */
  async restartBroker(): Promise<void> {
    const { http, grpc } = this.places;
    await this.broker.kill();
    this.broker = startRole<BrokerRole>("product", "broker");
    const ports = { http: Number(new URL(http).port), grpc: Number(new URL(grpc).port) };
    this.known = await this.broker.ask("start", { ...this.setup, ports });
  }

  async stop(): Promise<void> {
    try {
      await Promise.all([this.agent.ask("stop"), this.filling?.process.ask("stop"), ...this.fleets.map((fleet) => fleet.ask("stop"))]);
      await this.runner.ask("stop");
      await this.broker.ask("stop");
    } finally {
      await this.end();
    }
  }

  /** Ends the processes as they are. */
  async end(): Promise<void> {
    await Promise.all([this.agent, this.filling?.process, this.runner, ...this.fleets].map((each) => each?.end()));
    await this.broker.end();
  }
}
